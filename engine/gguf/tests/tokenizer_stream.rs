//! Text that arrives token by token.
#![allow(clippy::unwrap_used)] // Panics are how tests fail, in their helpers too.

mod tokenizer_data;

use proptest::prelude::*;
use std::sync::LazyLock;
use strata_gguf::{ControlText, Special, Tokenizer};

static NANO: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_metadata(&tokenizer_data::metadata("qwen35")).unwrap());

/// The pushed pieces and what finishing adds.
fn stream(ids: &[u32], control: ControlText) -> Vec<String> {
    let mut decoder = NANO.stream_decoder(control);
    let mut pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    pieces.push(decoder.finish());
    assert_eq!(decoder.finish(), "");
    pieces
}

fn lossy(ids: &[u32], control: ControlText) -> String {
    String::from_utf8_lossy(&NANO.decode(ids, control)).into_owned()
}

/// One token per byte.
fn byte_ids(bytes: &[u8]) -> Vec<u32> {
    bytes.iter().flat_map(|&b| NANO.encode([b], Special::Plain)).collect()
}

#[test]
fn characters_appear_when_complete() {
    assert_eq!(stream(&byte_ids("a😀é".as_bytes()), ControlText::Hide), ["a", "", "", "", "😀", "", "é", ""]);
    assert_eq!(stream(&byte_ids("👍🏽".as_bytes()), ControlText::Hide).concat(), "👍🏽");
}

#[test]
fn broken_bytes_are_replaced_as_soon_as_they_are_known_to_be() {
    let pieces = |bytes: &[u8]| stream(&byte_ids(bytes), ControlText::Hide);
    assert_eq!(pieces(b"\xFFa"), ["\u{FFFD}", "a", ""]);
    assert_eq!(pieces(b"\xC0\x80"), ["\u{FFFD}", "\u{FFFD}", ""]);
    assert_eq!(pieces(b"\xED\xA0\x80"), ["", "\u{FFFD}\u{FFFD}", "\u{FFFD}", ""]);
    assert_eq!(pieces(b"\xE2\x82a"), ["", "", "\u{FFFD}a", ""]);
    assert_eq!(pieces(b"\xF0\x9F\x98"), ["", "", "", "\u{FFFD}"]);
    assert_eq!(pieces(b"\xF0\x9F\xF0\x9F\x98\x80"), ["", "", "\u{FFFD}", "", "", "😀", ""]);
}

#[test]
fn control_tokens_are_hidden_or_shown() {
    let ids = NANO.encode("<|im_start|>a<think>b<|im_end|>", Special::Parse);
    assert_eq!(stream(&ids, ControlText::Hide).concat(), "a<think>b");
    assert_eq!(stream(&ids, ControlText::Show).concat(), "<|im_start|>a<think>b<|im_end|>");
}

/// Single bytes, any tokens and ids without a token, in any mixture.
fn ids() -> impl Strategy<Value = Vec<u32>> {
    let byte = any::<u8>().prop_map(|b| byte_ids(&[b]));
    let character = any::<char>().prop_map(|c| byte_ids(c.to_string().as_bytes()));
    let token = (0u32..4200).prop_map(|id| vec![id]);
    let anything = any::<u32>().prop_map(|id| vec![id]);
    let one = prop_oneof![4 => byte, 3 => character, 3 => token, 1 => anything];
    prop::collection::vec(one, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pieces are valid text by their type; together they are the lossy text of all bytes, and at every moment only
    /// the beginning of one character is held back.
    #[test]
    fn pieces_make_the_lossy_text(ids in ids(), show in any::<bool>()) {
        let control = if show { ControlText::Show } else { ControlText::Hide };
        prop_assert_eq!(stream(&ids, control).concat(), lossy(&ids, control));
        let mut decoder = NANO.stream_decoder(control);
        let mut text = String::new();
        for (i, &id) in ids.iter().enumerate() {
            text.push_str(&decoder.push(id));
            let so_far = lossy(&ids[..=i], control);
            let held = so_far.strip_prefix(text.as_str());
            prop_assert!(matches!(held, Some("" | "\u{FFFD}")), "{:?} is not {:?}", text, so_far);
        }
    }
}
