//! A conversation on the terminal.

use super::kept::Kept;
use super::show;
use crate::device::Machine;
use crate::exit::Interrupted;
use crate::interrupt;
use crate::output::note;
use anyhow::{Context, Result, bail};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use strata_runtime::GenerateParams;

const HELP: &str = "\
/clear   start a new conversation
/undo    take back the last question and its answer
/help    this list
/quit    leave (Ctrl-D does too)
A line that ends with \\ goes on in the next one. Ctrl-C ends an answer.";

const COMMANDS: [&str; 5] = ["/clear", "/undo", "/help", "/quit", "/exit"];

/// How often it is looked whether the program was told to end. Nobody notices it, and it costs nothing.
const PAUSE: Duration = Duration::from_millis(100);

/// What a line asks for.
enum Line {
    Question(String),
    Command(String),
    Nothing,
    /// Bytes that are no text; the line is lost.
    Garbled,
    End,
    Interrupted,
}

/// Talks until the user leaves, or the program is told to end. However that happens, the conversation is kept.
pub(super) fn talk<O: Machine>(mut kept: Kept<'_, O>, params: &GenerateParams, quiet: bool) -> Result<()> {
    if !quiet {
        note(&format!("{}: ask something; /help lists commands", kept.chat.session().engine().name()));
    }
    let terminal = Terminal::remember();
    interrupt::converse();
    let outcome = converse(&mut kept, params, quiet);
    if interrupt::leaving() {
        terminal.restore();
        note("");
    }
    let parked = kept.park(quiet);
    if interrupt::leaving() {
        // Once more, should the other thread have been slow.
        terminal.restore();
    }
    parked.and(outcome)
}

fn converse<O: Machine>(kept: &mut Kept<'_, O>, params: &GenerateParams, quiet: bool) -> Result<()> {
    // The handlers of signals, before the first question too.
    interrupt::handler()?;
    let lines = Lines::start()?;
    let mut interrupted = false;
    let mut warned = false;
    loop {
        let Some(line) = lines.next()? else { return Err(Interrupted.into()) };
        let again = std::mem::replace(&mut interrupted, matches!(line, Line::Interrupted));
        match line {
            Line::Nothing => {}
            Line::Garbled => note("note: that was not UTF-8 text, so the line is dropped"),
            Line::End => return Ok(()),
            Line::Interrupted if again => return Err(Interrupted.into()),
            Line::Interrupted => note("Ctrl-C again or Ctrl-D leaves"),
            Line::Command(command) => match command.as_str() {
                "/quit" | "/exit" => return Ok(()),
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
                        warned = warned || show::warn_of_failed_drafts(&answer);
                        if !quiet {
                            note(&show::summary(&answer));
                        }
                    }
                    Err(e) => note(&format!("error: {e}")),
                }
            }
        }
    }
}

/// The user's lines, read on a thread of their own: whoever waits for one can be told to end meanwhile.
struct Lines {
    wanted: Sender<()>,
    lines: Receiver<Result<Line>>,
}

impl Lines {
    fn start() -> Result<Lines> {
        let (wanted, asked) = mpsc::channel();
        let (found, lines) = mpsc::channel();
        let work = move || {
            let mut editor = match DefaultEditor::new().context("cannot use the terminal") {
                Ok(editor) => editor,
                // Nobody waits for it any more if this cannot be said.
                Err(e) => return drop(found.send(Err(e))),
            };
            let mut history = History::load(&mut editor);
            for () in asked {
                let line = read(&mut editor);
                history.save(&mut editor);
                if found.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("lines".into()).spawn(work).context("cannot read from the terminal")?;
        Ok(Lines { wanted, lines })
    }

    /// The next line; `None` when the program is to end instead.
    fn next(&self) -> Result<Option<Line>> {
        if interrupt::leaving() {
            return Ok(None);
        }
        // If the thread is gone, so is the other channel, as is found out next.
        let _ = self.wanted.send(());
        loop {
            // Looked at behind a pause: by then the thread has set the terminal's mode, which is to be restored.
            match self.lines.recv_timeout(PAUSE) {
                Ok(line) => return line.map(Some),
                Err(RecvTimeoutError::Timeout) if interrupt::leaving() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("cannot read from the terminal: its thread is gone"),
            }
        }
    }
}

/// The lines of earlier conversations.
struct History(Option<PathBuf>);

impl History {
    fn load(editor: &mut DefaultEditor) -> History {
        let file = history_file();
        if let Some(file) = &file {
            // A history that is not there yet, or cannot be read, is an empty one.
            let _ = editor.load_history(file);
        }
        History(file)
    }

    /// Saves it. That it cannot be saved is said once.
    fn save(&mut self, editor: &mut DefaultEditor) {
        let Some(file) = &self.0 else { return };
        let folder = std::fs::create_dir_all(file.parent().unwrap_or(file)).map_err(ReadlineError::from);
        if let Err(e) = folder.and_then(|()| editor.save_history(file)) {
            note(&format!("warning: the history is not kept: {e}"));
            self.0 = None;
        }
    }
}

/// How the terminal was before lines were edited on it, which changes its mode.
struct Terminal {
    #[cfg(unix)]
    mode: Option<rustix::termios::Termios>,
}

impl Terminal {
    #[cfg(unix)]
    fn remember() -> Terminal {
        Terminal { mode: rustix::termios::tcgetattr(rustix::stdio::stdin()).ok() }
    }

    /// For a program that ends while a line is edited. A terminal that is gone needs nothing.
    #[cfg(unix)]
    fn restore(&self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(mode) = &self.mode {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, mode);
        }
    }

    #[cfg(not(unix))]
    fn remember() -> Terminal {
        Terminal {}
    }

    #[cfg(not(unix))]
    fn restore(&self) {}
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
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => return Ok(Line::Interrupted),
            Err(ReadlineError::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData => return Ok(Line::Garbled),
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
