//! Patterns and formats of JSON Schema as regular expressions of whole texts.

use regex_syntax::hir::print::Printer;
use regex_syntax::hir::{Hir, HirKind, Look};

/// The texts in which a pattern is found somewhere, as an expression for all of the text, and how long it is with its
/// repetitions written out. Patterns are JavaScript's.
///
/// # Errors
/// Why it cannot be one, to be put behind the pattern: it is none, or it looks around itself.
pub(super) fn pattern(pattern: &str) -> Result<(String, usize), &'static str> {
    let hir = regex_syntax::parse(&translated(pattern)).map_err(|_| "is no regular expression that is known here")?;
    let whole = found(&hir, true, true).ok_or("looks at what is around a place")?;
    let mut text = String::new();
    Printer::new().print(&whole, &mut text).map_err(|_| "cannot be written down")?;
    Ok((text, length(&whole)))
}

/// How long an expression is with its repetitions written out.
fn length(hir: &Hir) -> usize {
    let parts = hir.kind().subs().iter().map(length).fold(1, usize::saturating_add);
    match hir.kind() {
        HirKind::Repetition(r) => parts.saturating_mul(r.max.unwrap_or(r.min).max(r.min).max(1) as usize),
        HirKind::Literal(text) => text.0.len(),
        _ => parts,
    }
}

/// The texts of a format; `None` if it is not known here.
pub(super) fn format(name: &str) -> Option<String> {
    const MONTHS: &str = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
    const LEAP: &str = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
    const HOUR: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
    const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    const BYTE: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    const ATOM: &str = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
    let date = || format!("(?:[0-9]{{4}}-{MONTHS}|{LEAP}-02-29)");
    let time = || format!("{HOUR}:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]{HOUR})");
    let host = || format!("{LABEL}(?:\\.{LABEL})*");
    Some(match name {
        "date" => date(),
        "time" => time(),
        "date-time" => format!("{}[Tt]{}", date(), time()),
        "duration" => {
            let day = "[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D";
            let time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
            format!("P(?:(?:{day})(?:{time})?|{time}|[0-9]+W)")
        }
        "email" => format!("{ATOM}(?:\\.{ATOM})*@{}", host()),
        "hostname" => host(),
        "ipv4" => format!("{BYTE}(?:\\.{BYTE}){{3}}"),
        "ipv6" => {
            let group = "[0-9A-Fa-f]{1,4}";
            let cut = (1..=6).map(|n| format!("(?:{group}:){{1,{}}}(?::{group}){{1,{n}}}", 7 - n));
            let ends = [
                format!("(?:{group}:){{7}}{group}"),
                format!("(?:{group}:){{1,7}}:"),
                format!(":(?:(?::{group}){{1,7}}|:)"),
            ];
            format!("(?:{})", ends.into_iter().chain(cut).collect::<Vec<_>>().join("|"))
        }
        "uuid" => "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}".to_owned(),
        "uri" => {
            let char = |more: &str| format!("(?:[A-Za-z0-9._~!$&'()*+,;={more}-]|%[0-9A-Fa-f]{{2}})");
            let authority = format!("//(?:{}*@)?{}*(?::[0-9]*)?(?:/{}*)*", char(":"), char(""), char(":@"));
            let path = format!("/?{0}+(?:/{0}*)*", char(":@"));
            let rest = format!("(?:\\?{0}*)?(?:#{0}*)?", char(":@/?"));
            format!("[A-Za-z][A-Za-z0-9+.-]*:(?:{authority}|{path}){rest}")
        }
        _ => return None,
    })
}

/// A JavaScript pattern with what other dialects read differently written out.
fn translated(pattern: &str) -> String {
    let (mut text, mut class, mut chars) = (String::with_capacity(pattern.len()), false, pattern.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => text.push_str("[0-9]"),
                Some('D') => text.push_str("[^0-9]"),
                Some('w') => text.push_str("[0-9A-Za-z_]"),
                Some('W') => text.push_str("[^0-9A-Za-z_]"),
                // Edges of words elsewhere.
                Some(plain @ ('<' | '>')) => text.push(plain),
                escaped => text.extend(['\\'].into_iter().chain(escaped)),
            },
            // Sets of sets elsewhere.
            '[' | '&' | '~' if class => text.extend(['\\', c]),
            '[' | ']' => {
                class = c == '[';
                text.push(c);
            }
            c => text.push(c),
        }
    }
    text
}

/// The expression with any text around it, except where it is anchored. `left` and `right` say that it lies at that edge
/// of the whole. `None` if it has an anchor elsewhere.
fn found(hir: &Hir, left: bool, right: bool) -> Option<Hir> {
    let around = |inner: Hir, left: bool, right: bool| {
        Hir::concat(left.then(any).into_iter().chain([inner]).chain(right.then(any)).collect())
    };
    if hir.properties().look_set().is_empty() {
        return Some(around(hir.clone(), left, right));
    }
    match hir.kind() {
        HirKind::Look(Look::Start) if left => Some(around(Hir::empty(), false, right)),
        HirKind::Look(Look::End) if right => Some(around(Hir::empty(), left, false)),
        HirKind::Capture(group) => found(&group.sub, left, right),
        HirKind::Alternation(parts) => {
            parts.iter().map(|part| found(part, left, right)).collect::<Option<_>>().map(Hir::alternation)
        }
        HirKind::Concat(parts) => {
            let is = |look: Look| move |part: &&Hir| matches!(part.kind(), HirKind::Look(l) if *l == look);
            let starts = if left { parts.iter().take_while(is(Look::Start)).count() } else { 0 };
            let rest = &parts[starts..];
            let ends = if right { rest.iter().rev().take_while(is(Look::End)).count() } else { 0 };
            let (left, right) = (left && starts == 0, right && ends == 0);
            let inner = &rest[..rest.len() - ends];
            if inner.is_empty() {
                return Some(around(Hir::empty(), left, right));
            }
            let last = inner.len() - 1;
            let part = |(i, part): (usize, &Hir)| found(part, left && i == 0, right && i == last);
            inner.iter().enumerate().map(part).collect::<Option<_>>().map(Hir::concat)
        }
        _ => None,
    }
}

/// Any text.
fn any() -> Hir {
    Hir::repetition(regex_syntax::hir::Repetition {
        min: 0,
        max: None,
        greedy: true,
        sub: Box::new(Hir::dot(regex_syntax::hir::Dot::AnyChar)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, text: &str) -> bool {
        regex::Regex::new(&format!(r"\A(?:{expression})\z")).expect("an expression").is_match(text)
    }

    #[test]
    fn patterns_are_found_anywhere_unless_they_are_anchored() {
        for (found, yes, no) in [
            ("b", "abc", "ac"),
            ("^b", "bc\n", "ab"),
            ("b$", "a\nb", "b\n"),
            ("^(a|b)$", "b", "ab"),
            ("^a|b$", "ax", "bx"),
            ("^a|b$", "xb", "xa"),
            ("(^a|b)c", "xbc", "xac"),
            ("(^a|b)c", "acx", "xa"),
            ("^$", "", "x"),
            ("^", "anything\nat all", "none"),
            (r"^\d+$", "12", "٣"),
            (r"^[\w.]+@[\w-]+$", "a.b@c-d", "é@c"),
            (r"^[[&&x]+$", "[&x", "y"),
            (r"^/\/\<\>-$", "//<>-", "//"),
        ] {
            let (whole, _) = pattern(found).expect(found);
            assert!(matches(&whole, yes), "{found} as {whole} is in {yes:?}");
            assert!(no == "none" || !matches(&whole, no), "{found} as {whole} is not in {no:?}");
        }
        assert_eq!(pattern("^(ab{1,10}){20}$").map(|(_, length)| (200..500).contains(&length)), Ok(true));
        for none in ["(?=a)b", r"\bword", "a^b", "a(b$)c", "(^a)*", "(", r"(a)\1"] {
            assert!(pattern(none).is_err(), "{none}");
        }
    }

    #[test]
    fn formats_are_what_they_say() {
        for (name, yes, no) in [
            (
                "date",
                "2024-02-29 2000-02-29 1999-12-31 2023-04-30",
                "2023-02-29 1900-02-29 2023-04-31 2023-13-01 23-01-01",
            ),
            ("time", "23:59:59Z 00:00:00.5+01:30", "24:00:00Z 12:00:00 12:00Z"),
            ("date-time", "2024-02-29T12:00:00Z", "2024-02-29 2024-02-30T12:00:00Z"),
            ("duration", "P1D PT5M P1Y2M3DT4H5M6S P2W", "P PT 1D P1S P1DT P1W2D"),
            ("email", "a.b+c@example.org x@localhost", "a@ @b a..b@c a@-b a@b..c"),
            ("hostname", "example.org a-1.b", "-a a- a..b a_b"),
            ("ipv4", "0.0.0.0 255.1.20.199", "256.0.0.1 1.2.3 01.2.3.4"),
            (
                "ipv6",
                ":: ::1 1:: 2001:db8::8:800:200c:417a 1:2:3:4:5:6:7:8",
                "1:2:3 ::: 1::2::3 1:2:3:4:5:6:7:8:9 12345::",
            ),
            (
                "uuid",
                "123e4567-e89b-12d3-a456-426614174000",
                "123e4567e89b12d3a456426614174000 g23e4567-e89b-12d3-a456-426614174000",
            ),
            (
                "uri",
                "https://u@example.org:80/a/b?c=d#e mailto:a@b urn:x:y file:///tmp",
                "example.org /a https://a:b/ 1a:b a:",
            ),
        ] {
            let format = format(name).expect(name);
            for text in yes.split(' ') {
                assert!(matches(&format, text), "{name}: {text}");
            }
            for text in no.split(' ') {
                assert!(!matches(&format, text), "{name}: {text}");
            }
        }
        assert_eq!(format("colour"), None);
    }
}
