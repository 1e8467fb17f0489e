//! Arguments of calls as this interface gives them: one whole member of the object after the other.
//!
//! A call that a limit cut is given with the arguments that were whole by then, and the object is closed: in a stream as
//! in a message that comes at once. So the input is always an object, and no half of a text is taken for all of it;
//! `stop_reason` says that something is missing. In a stream an argument is sent when it is whole, since half of one
//! could not be taken back.

/// Takes a JSON object apart while it is written.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// What was not passed on yet.
    kept: String,
    /// Lists and objects that are open.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether anything was passed on.
    begun: bool,
}

impl Members {
    /// Takes a piece, and gives what can be passed on.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let mut whole = String::new();
        for c in piece.chars() {
            let inside = self.depth == 1 && !self.in_string;
            if inside && c == ',' {
                whole.push_str(&std::mem::take(&mut self.kept));
            }
            self.kept.push(c);
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = self.in_string,
                '"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if inside && self.depth == 0 {
                whole.push_str(&std::mem::take(&mut self.kept));
            }
        }
        self.begun |= !whole.is_empty();
        whole
    }

    /// What closes the object after what was passed on.
    pub(super) fn end(self) -> &'static str {
        match (self.depth, self.begun) {
            (0, _) => "",
            (_, true) => "}",
            (_, false) => "{}",
        }
    }
}

/// The whole members of an object that may be cut.
pub(super) fn whole_members(arguments: &str) -> String {
    let mut members = Members::default();
    let whole = members.push(arguments);
    whole + members.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn wherever_it_is_cut_whole_members_are_left() {
        let text = r#"{"a":"x, \"}\" \\","b":[1,{"c":","}],"d":12,"e":{}}"#;
        let members: Vec<(String, Value)> = serde_json::from_str::<Value>(text)
            .ok()
            .and_then(|v| v.as_object().cloned())
            .map(|object| object.into_iter().collect())
            .unwrap_or_default();
        assert_eq!(whole_members(text), text);
        let mut counts = Vec::new();
        for at in 1..text.len() {
            let cut = whole_members(&text[..at]);
            let Ok(Value::Object(object)) = serde_json::from_str(&cut) else { panic!("{at}: {cut}") };
            assert!(object.iter().zip(&members).all(|((a, x), (b, y))| a == b && x == y), "{cut}");
            counts.push(object.len());
            // In pieces of any size it comes to the same.
            let mut pieces = Members::default();
            let streamed: String = text[..at].chars().map(|c| pieces.push(&c.to_string())).collect();
            assert_eq!(streamed + pieces.end(), cut);
        }
        assert!(counts.is_sorted() && counts.last() == Some(&3), "{counts:?}");
        assert_eq!(whole_members("{}"), json!({}).to_string());
        assert_eq!(whole_members(""), "");
    }
}
