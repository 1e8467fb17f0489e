//! The text that is read: real, and another passage for every repetition. A repeated phrase would flatter every cache
//! and have the router choose the same experts again and again.

use crate::output;
use anyhow::{Context, Result, bail};
use std::path::Path;
use strata_gguf::{Special, Tokenizer, show_path};

/// Held-out conversations of the built-in model.
static CONVERSATIONS: &str = include_str!("../../model/conversations.jsonl");

/// A text as tokens of one model.
pub(crate) struct Corpus {
    /// Where the text is from.
    pub(crate) name: String,
    tokens: Vec<u32>,
    next: usize,
}

impl Corpus {
    /// The text of a file, or the conversations that come with the binary. Each model's own tokenizer cuts it, so
    /// tokens are always of its vocabulary.
    pub(crate) fn open(path: Option<&Path>, tokenizer: &Tokenizer) -> Result<Corpus> {
        let (name, text) = match path {
            None => ("conversations.jsonl (built in)".to_owned(), conversations(CONVERSATIONS)?),
            Some(path) => {
                let name = show_path(path);
                let bytes = std::fs::read(path).with_context(|| format!("cannot read the corpus {name}"))?;
                let text = String::from_utf8(bytes)
                    .ok()
                    .with_context(|| format!("the corpus {name} is not UTF-8, and text in UTF-8 is expected"))?;
                let lines = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl"));
                let text =
                    if lines { conversations(&text).with_context(|| format!("the corpus {name}"))? } else { text };
                (name, text)
            }
        };
        // Control tokens that the text holds are read as such where the vocabulary has them: it is a conversation's.
        Ok(Corpus { name, tokens: tokenizer.encode(&text, Special::Parse), next: 0 })
    }

    /// Fails unless there are `needed` tokens; `remedies` name what makes do with fewer.
    pub(crate) fn must_hold(&self, needed: usize, remedies: &str) -> Result<()> {
        if self.tokens.len() < needed {
            bail!(
                "the corpus {} has {} and {} different ones are to be read; {remedies} or a longer --corpus is needed",
                self.name,
                output::count(self.tokens.len(), "token"),
                output::grouped(needed as u64)
            );
        }
        Ok(())
    }

    /// The next passage; shorter than asked for at the end of the text, which [`must_hold`](Self::must_hold) rules out.
    pub(crate) fn take(&mut self, tokens: usize) -> &[u32] {
        let first = self.next.min(self.tokens.len());
        self.next = (first + tokens).min(self.tokens.len());
        &self.tokens[first..self.next]
    }
}

/// The texts of lines like `{"text": "..."}`, one after another.
fn conversations(lines: &str) -> Result<String> {
    #[derive(serde::Deserialize)]
    struct Line {
        text: String,
    }
    let mut all = String::with_capacity(lines.len());
    for (i, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line)
            .with_context(|| format!("line {} is not what is expected, an object with a \"text\"", i + 1))?;
        all.push_str(&line.text);
        all.push('\n');
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_do_not_overlap() {
        let mut corpus = Corpus { name: "c".into(), tokens: (0..10).collect(), next: 0 };
        assert_eq!(corpus.take(4), [0, 1, 2, 3]);
        assert_eq!(corpus.take(5), [4, 5, 6, 7, 8]);
        assert_eq!(corpus.take(5), [9]);
        assert_eq!(corpus.take(1), [0u32; 0]);
        assert!(corpus.must_hold(10, "x").is_ok());
        let e = corpus.must_hold(11, "fewer").unwrap_err().to_string();
        assert_eq!(
            e,
            "the corpus c has 10 tokens and 11 different ones are to be read; fewer or a longer --corpus is needed"
        );
    }

    #[test]
    fn lines_are_texts() {
        assert_eq!(conversations("{\"text\": \"a\"}\n\n{\"kind\": \"x\", \"text\": \"b\"}\n").unwrap(), "a\nb\n");
        assert!(format!("{:#}", conversations("{\"text\": \"a\"}\nb\n").unwrap_err()).contains("line 2"));
        assert!(conversations(CONVERSATIONS).unwrap().len() > 200_000);
    }
}
