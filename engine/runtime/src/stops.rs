//! Texts that end an answer: text that may become one is held back until that is decided.

use crate::logprobs::TokenLogprob;
use crate::session::Event;
use std::collections::VecDeque;

/// What is held back.
enum Held {
    /// Text of so many bytes.
    Text(usize),
    /// A token of the chat format, of so many bytes.
    Mark(usize),
    /// How likely the token of the following text was.
    Logprob(TokenLogprob),
}

/// An answer's text on its way to the reader.
///
/// The text that is shown ends before the stop text that is complete first, and of several that are complete at the same
/// character before the longest. So it does not matter how tokens divide the text.
pub(crate) struct Stops {
    texts: Vec<String>,
    held: VecDeque<Held>,
    text: String,
    shown: String,
}

impl Stops {
    pub(crate) fn new(texts: Vec<String>) -> Stops {
        Stops { texts, held: VecDeque::new(), text: String::new(), shown: String::new() }
    }

    /// Everything that was shown.
    pub(crate) fn into_shown(self) -> String {
        self.shown
    }

    /// Says how likely the token of the next text was.
    pub(crate) fn logprob(&mut self, logprob: TokenLogprob) {
        self.held.push_back(Held::Logprob(logprob));
    }

    /// Takes a piece of text and shows what is certain. Returns the stop text that is complete; what comes from it on is
    /// dropped.
    pub(crate) fn push(&mut self, piece: &str, mark: bool, on_event: &mut dyn FnMut(Event<'_>)) -> Option<String> {
        let before = self.text.len();
        self.text.push_str(piece);
        if !piece.is_empty() {
            self.held.push_back(if mark { Held::Mark(piece.len()) } else { Held::Text(piece.len()) });
        }
        if let Some((start, stop)) = self.complete(before) {
            let stop = stop.to_owned();
            self.show(start, on_event);
            self.held.clear();
            self.text.clear();
            return Some(stop);
        }
        let certain = self.text.len() - self.undecided();
        self.show(certain, on_event);
        None
    }

    /// Shows what is held back: nothing follows that could make a stop text of it.
    pub(crate) fn flush(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        self.show(self.text.len(), on_event);
    }

    /// The stop text that ends first behind `before`, and where it starts.
    fn complete(&self, before: usize) -> Option<(usize, &str)> {
        let end_of = |text: &'_ String| {
            // One that ends in the new piece starts at most its own length before it.
            let mut from = (before + 1).saturating_sub(text.len());
            while !self.text.is_char_boundary(from) {
                from -= 1;
            }
            self.text.get(from..)?.find(text.as_str()).map(|at| from + at + text.len())
        };
        let ends = self.texts.iter().filter_map(|text| Some((end_of(text)?, text)));
        let (end, text) = ends.min_by_key(|(end, text)| (*end, std::cmp::Reverse(text.len())))?;
        Some((end - text.len(), text))
    }

    /// How many bytes at the end may be the beginning of a stop text.
    fn undecided(&self) -> usize {
        let begins = |text: &String| {
            let most = self.text.len().min(text.len().saturating_sub(1));
            (1..=most)
                .rev()
                .find(|&n| text.is_char_boundary(n) && self.text.as_bytes().ends_with(&text.as_bytes()[..n]))
        };
        self.texts.iter().filter_map(begins).max().unwrap_or(0)
    }

    /// Shows the first bytes of what is held back.
    fn show(&mut self, bytes: usize, on_event: &mut dyn FnMut(Event<'_>)) {
        let (whole, mut left) = (bytes == self.text.len(), bytes);
        let mut at = 0;
        while let Some(first) = self.held.pop_front() {
            let (len, mark) = match first {
                Held::Logprob(logprob) if left > 0 || whole => {
                    on_event(Event::Logprob(&logprob));
                    continue;
                }
                Held::Logprob(_) => {
                    self.held.push_front(first);
                    break;
                }
                Held::Text(len) => (len, false),
                Held::Mark(len) => (len, true),
            };
            let now = len.min(left);
            let piece = self.text.get(at..at + now).unwrap_or_default();
            if now > 0 {
                on_event(if mark { Event::Mark(piece) } else { Event::Text(piece) });
                self.shown.push_str(piece);
            }
            (at, left) = (at + now, left - now);
            if now < len {
                self.held.push_front(if mark { Held::Mark(len - now) } else { Held::Text(len - now) });
                break;
            }
        }
        self.text.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is shown of a text in pieces, and the stop text that ended it.
    fn shown(texts: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut stops = Stops::new(texts.iter().map(|&t| t.to_owned()).collect());
        let mut events = String::new();
        let mut on_event = |event: Event<'_>| {
            if let Event::Text(piece) | Event::Mark(piece) = event {
                events.push_str(piece);
            }
        };
        let hit = pieces.iter().find_map(|piece| stops.push(piece, false, &mut on_event));
        if hit.is_none() {
            stops.flush(&mut on_event);
        }
        assert_eq!(events, stops.shown);
        (events, hit)
    }

    #[test]
    fn nothing_of_a_stop_text_is_shown() {
        let pieces = ["ABC", "DE", "FG", "H", "IJK"];
        assert_eq!(shown(&["DEFGHIJ"], &pieces), ("ABC".to_owned(), Some("DEFGHIJ".to_owned())));
        assert_eq!(shown(&["DEFGHIX"], &pieces), ("ABCDEFGHIJK".to_owned(), None));
        assert_eq!(shown(&["ABCDEFGHIJKL"], &pieces), ("ABCDEFGHIJK".to_owned(), None));
        assert_eq!(shown(&["CDEFGX", "FGH"], &pieces), ("ABCDE".to_owned(), Some("FGH".to_owned())));
        assert_eq!(shown(&["ü"], &["gr", "ün"]), ("gr".to_owned(), Some("ü".to_owned())));
        assert_eq!(shown(&["üx", "nün"], &["gr", "ü", "nü"]), ("grünü".to_owned(), None));
    }

    #[test]
    fn what_cannot_become_a_stop_text_is_shown_at_once() {
        let mut stops = Stops::new(vec!["abab".to_owned(), "\n\n".to_owned()]);
        let mut push = |piece: &str| {
            let mut now = String::new();
            let hit = stops.push(piece, false, &mut |event| {
                if let Event::Text(piece) = event {
                    now.push_str(piece);
                }
            });
            (now, hit)
        };
        assert_eq!(push("x a"), ("x ".to_owned(), None));
        assert_eq!(push("ba"), (String::new(), None));
        assert_eq!(push("a"), ("aba".to_owned(), None));
        assert_eq!(push("\n"), ("a".to_owned(), None));
        assert_eq!(push("c"), ("\nc".to_owned(), None));
        assert_eq!(push("ab\n\nab"), ("ab".to_owned(), Some("\n\n".to_owned())));
    }

    #[test]
    fn log_probabilities_stay_with_their_text() {
        let mut stops = Stops::new(vec!["cd".to_owned()]);
        let mut seen = Vec::new();
        for (id, piece) in (0..).zip(["a", "b", "c", "x", "", "c", "d"]) {
            stops.logprob(TokenLogprob { id, bytes: Vec::new(), logprob: 0.0, top: Vec::new() });
            stops.push(piece, false, &mut |event| match event {
                Event::Text(piece) => seen.push(piece.to_owned()),
                Event::Logprob(logprob) => seen.push(logprob.id.to_string()),
                _ => {}
            });
        }
        assert_eq!(seen, ["0", "a", "1", "b", "2", "c", "3", "x", "4"]);
    }

    proptest! {
        /// A text in any pieces ends where it ends character by character.
        #[test]
        fn pieces_make_no_difference(
            text in "[abü]{0,30}",
            cuts in proptest::collection::vec(0usize..30, 0..8),
            stops in proptest::collection::vec("[abü]{1,5}", 1..4),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let characters: Vec<String> = text.chars().map(String::from).collect();
            let mut pieces = vec![String::new()];
            for (i, c) in characters.iter().enumerate() {
                if cuts.contains(&i) {
                    pieces.push(String::new());
                }
                pieces.last_mut().unwrap().push_str(c);
            }
            let of = |pieces: &[String]| shown(&stops, &pieces.iter().map(String::as_str).collect::<Vec<_>>());
            let (found, hit) = of(&pieces);
            prop_assert_eq!((&found, &hit), (&of(&characters).0, &of(&characters).1));
            // By the definition: the first place at which the text so far ends with a stop text.
            let ends = text.char_indices().map(|(i, c)| i + c.len_utf8());
            let first = ends.filter_map(|end| {
                let longest = stops.iter().filter(|s| text[..end].ends_with(**s)).max_by_key(|s| s.len())?;
                Some((text[..end - longest.len()].to_owned(), Some((*longest).to_owned())))
            }).next();
            prop_assert_eq!((found, hit), first.unwrap_or((text.clone(), None)));
        }
    }
}
