//! Why a prompt could not go on where a conversation was.

use strata_runtime::{Near, Prompt};

/// The reason in words, for a prompt that had `cached` tokens of the nearest conversation; `None` if it went on in it, or
/// if there was none.
pub(super) fn miss(prompt: &Prompt, near: Option<Near>, cached: usize) -> Option<String> {
    let (of, near) = (prompt.tokens.len(), near?);
    if near.common == near.known || near.common == of {
        // It went on; what of it had no checkpoint in reach is a loss all the same.
        return (cached + 1 < near.common).then(|| {
            format!(
                "the prompt goes on in a conversation of {} tokens, but only {cached} of them could be reused",
                near.known
            )
        });
    }
    if near.common == 0 {
        return Some("the prompt differs from every kept conversation at its first token; 0 tokens were reused".into());
    }
    let place = place(prompt, near.common);
    let at = near.common + 1;
    Some(format!(
        "the prompt differs from the nearest conversation at token {at} of {of} ({place}); {cached} tokens were reused"
    ))
}

/// Tokens that a reader would notice.
const MUCH: usize = 64;

/// Whether so much of the nearest conversation was of no use that it is worth a line in the log.
pub(super) fn costly(prompt: &Prompt, near: Option<Near>, cached: usize) -> bool {
    near.is_some_and(|near| near.known.min(prompt.tokens.len()) >= cached + MUCH)
}

/// What part of the prompt a token belongs to.
fn place(prompt: &Prompt, token: usize) -> &'static str {
    match prompt.last {
        _ if token < prompt.shared => "system message",
        Some(last) if token >= last => "last message",
        Some(_) => "earlier message",
        None if prompt.chat => "a message",
        None => "a text without messages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_place() {
        let prompt = Prompt { tokens: vec![7; 812], shared: 100, marks: vec![700, 810], chat: true, last: Some(700) };
        let near = |common, known| Some(Near { common, known });
        let says = |near, cached| miss(&prompt, near, cached).unwrap_or_default();
        assert!(says(near(4, 900), 0).contains("at token 5 of 812 (system message); 0 tokens were reused"));
        assert!(says(near(300, 900), 100).contains("at token 301 of 812 (earlier message); 100 tokens"));
        assert!(says(near(811, 900), 700).contains("(last message)"));
        assert!(says(near(720, 900), 700).contains("(last message)"));
        let tools = Prompt { last: None, ..prompt.clone() };
        assert!(miss(&tools, near(300, 900), 100).is_some_and(|why| why.contains("(a message)")));
        let text = Prompt::from(vec![7; 812]);
        assert!(miss(&text, near(300, 900), 100).is_some_and(|why| why.contains("(a text without messages)")));
        assert!(says(near(0, 900), 0).contains("first token"));
        assert!(says(near(500, 500), 100).contains("only 100 of them"));
        assert_eq!(miss(&prompt, near(500, 500), 500), None);
        assert_eq!(miss(&prompt, near(812, 900), 811), None);
        assert_eq!(miss(&prompt, None, 0), None);
        assert!(costly(&prompt, near(300, 900), 100) && !costly(&prompt, near(811, 900), 810));
        assert!(!costly(&prompt, near(5, 40), 0) && !costly(&prompt, None, 0));
    }
}
