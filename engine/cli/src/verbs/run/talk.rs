//! A conversation on the terminal.

use super::kept::Kept;
use super::show;
use crate::exit::Interrupted;
use crate::interrupt;
use crate::output::note;
use anyhow::{Context, Result};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::path::PathBuf;
use strata_runtime::GenerateParams;

const HELP: &str = "\
/clear   start a new conversation
/undo    take back the last question and its answer
/help    this list
/quit    leave (Ctrl-D does too)
A line that ends with \\ goes on in the next one. Ctrl-C ends an answer.";

const COMMANDS: [&str; 5] = ["/clear", "/undo", "/help", "/quit", "/exit"];

/// What a line asks for.
enum Line {
    Question(String),
    Command(String),
    Nothing,
    End,
    Interrupted,
}

/// Talks until the user leaves.
pub(super) fn talk(mut kept: Kept<'_>, params: &GenerateParams, quiet: bool) -> Result<()> {
    let mut editor = DefaultEditor::new().context("cannot use the terminal")?;
    let history = history_file();
    if let Some(file) = &history {
        // A history that is not there yet, or cannot be read, is an empty one.
        let _ = editor.load_history(file);
    }
    if !quiet {
        note(&format!("{}: ask something; /help lists commands", kept.chat.session().engine().name()));
    }
    let mut interrupted = false;
    let outcome = loop {
        let line = read(&mut editor)?;
        let again = std::mem::replace(&mut interrupted, matches!(line, Line::Interrupted));
        match line {
            Line::Nothing => {}
            Line::End => break Ok(()),
            Line::Interrupted if again => break Err(Interrupted.into()),
            Line::Interrupted => note("Ctrl-C again or Ctrl-D leaves"),
            Line::Command(command) => match command.as_str() {
                "/quit" | "/exit" => break Ok(()),
                "/clear" => {
                    // What is left behind is kept too.
                    if let Err(e) = kept.park(quiet) {
                        note(&format!("warning: the conversation is not kept: {e}"));
                    }
                    kept.clear();
                    note("new conversation");
                }
                "/undo" => note(if kept.chat.undo() { "taken back" } else { "nothing to take back" }),
                "/help" => note(HELP),
                other => note(&format!("{other} is no command; /help lists them, and none takes anything behind it")),
            },
            Line::Question(question) => {
                let cancel = interrupt::handler()?;
                let mut screen = show::Screen::new(cancel, false, quiet);
                // A question that fails leaves the conversation as it was: say why and go on.
                match kept.chat.ask(&question, params, cancel, &mut |event| screen.event(event)) {
                    Ok(answer) => {
                        screen.end()?;
                        if !quiet {
                            note(&show::summary(&answer));
                        }
                    }
                    Err(e) => note(&format!("error: {e}")),
                }
            }
        }
    };
    let parked = kept.park(quiet);
    if let Some(file) = &history
        && let Err(e) = std::fs::create_dir_all(file.parent().unwrap_or(file))
            .map_err(ReadlineError::from)
            .and_then(|()| editor.save_history(file))
    {
        note(&format!("warning: the history is not kept: {e}"));
    }
    parked.and(outcome)
}

/// Reads a line, with those it continues in.
fn read(editor: &mut DefaultEditor) -> Result<Line> {
    let mut text = String::new();
    loop {
        match editor.readline(if text.is_empty() { "> " } else { "  " }) {
            Ok(line) => match line.strip_suffix('\\') {
                Some(start) => {
                    text.push_str(start);
                    text.push('\n');
                }
                None => {
                    text.push_str(&line);
                    break;
                }
            },
            Err(ReadlineError::Eof) => return Ok(Line::End),
            Err(ReadlineError::Interrupted) => return Ok(Line::Interrupted),
            Err(e) => return Err(e).context("cannot read from the terminal"),
        }
    }
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(Line::Nothing);
    }
    let _ = editor.add_history_entry(trimmed);
    // Commands take nothing behind them, but a question that merely begins with one is more likely a slip.
    let first = trimmed.split_whitespace().next().unwrap_or_default();
    let lone = first.len() == trimmed.len();
    Ok(if first.starts_with('/') && (lone || COMMANDS.contains(&first)) {
        Line::Command(if lone { first.to_owned() } else { trimmed.to_owned() })
    } else {
        Line::Question(text)
    })
}

/// Where lines are kept from one conversation to the next, by the XDG rules.
fn history_file() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("strata/history"))
}
