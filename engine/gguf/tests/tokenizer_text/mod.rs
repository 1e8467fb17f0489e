//! Strings for tokenizer tests, the same in every run.

/// A xorshift generator (Marsaglia, 2003): tests need variety, not quality.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.max(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 11) % n as u64) as usize
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const WORDS: &[&str] = &[
    "the",
    "quick",
    "Brown",
    "FOX",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "I",
    "don't",
    "WE'LL",
    "you'Re",
    "it's",
    "'tis",
    "they've",
    "I'M",
    "he'd",
    "O'Neill",
    "rock'n'roll",
    "'sound",
    "'LLama",
    "'ſ",
    "naïve",
    "café",
    "straße",
    "ĲSSEL",
    "tokenizer",
    "antidisestablishmentarianism",
    "x",
    "Hello",
    "world",
    "In",
    "the",
    "beginning",
    "God",
    "created",
];
const CODE: &[&str] = &[
    "def f(x):\n    return x\n",
    "if (a && b) {\n\t\treturn a->b[0];\n}",
    "std::vec<u8>",
    "x += 1;",
    "// comment\r\n",
    "#include <stdio.h>\n",
    "foo_bar",
    "camelCaseName",
    "0xFF",
    "3.14e-10",
    "a==b!=c",
    "<div class=\"x\">",
    "</div>",
    "{{ jinja }}",
    "$HOME/.cargo",
    "http://example.org/?q=1&r=%20",
    "\\n\\t",
    "\"\"\"doc\"\"\"",
    "!!!",
    "???\n\n",
    "...",
    " (",
    ") ",
    "[1, 2]",
    "`x`",
    "--flag=value",
    "@decorator\n",
    "/* */",
    "'''",
    "'",
    "\"",
    "a'b'c",
    "''s",
    "'t'll",
];
const OTHER: &[&str] = &[
    "今天天气很好",
    "東京タワー",
    "カタカナ",
    "한국어",
    "漢字。かな、",
    "Привет",
    "мир",
    "Ёлка",
    "Ελληνικά",
    "שָׁלוֹם",
    "مَرْحَبًا",
    "हिन्दी",
    "ไทยภาษา",
    "தமிழ்",
    "বাংলা",
    "ქართული",
    "Հայերեն",
    "አማርኛ",
    "e\u{301}",
    "\u{301}",
    "a\u{300}\u{316}\u{34F}b",
    "\u{20DD}",
    "ﬁ",
    "Ω",
    "ǅ",
    "ʰ",
    "ª",
    "𝒳",
    "𐍈",
    "𠀀",
    "İ",
    "ß",
    "ﷺ",
    "！？",
    "「」",
    "—",
    "–",
    "…",
    "№",
    "™",
    "€",
    "£",
    "\u{AD}",
];
const EMOJI: &[&str] = &[
    "😀",
    "👩\u{200D}👩\u{200D}👧\u{200D}👦",
    "🏳\u{FE0F}\u{200D}🌈",
    "🇨🇭",
    "🇺🇳🇩🇪",
    "👍🏽",
    "🧑🏿\u{200D}🚀",
    "❤\u{FE0F}",
    "1\u{FE0F}\u{20E3}",
    "🏴\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
    "☃",
    "\u{200D}",
    "\u{FE0F}",
    "🫠",
    "✨✨",
];
const SPACE: &[&str] = &[
    " ",
    "  ",
    "   ",
    "        ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\r\n\r\n",
    "\t",
    "\t\t",
    " \n",
    "\n ",
    " \n \n ",
    "\n\t",
    "\u{B}",
    "\u{C}",
    "\u{85}",
    "\u{A0}",
    "\u{1680}",
    "\u{2000}",
    "\u{2001}\u{2002}",
    "\u{2003}",
    "\u{2004}\u{2005}\u{2006}",
    "\u{2007}",
    "\u{2008}",
    "\u{2009}",
    "\u{200A}",
    "\u{2028}",
    "\u{2029}",
    "\u{202F}",
    "\u{205F}",
    "\u{3000}",
    "\u{180E}",
    "\u{200B}",
    "\u{FEFF}",
    "\u{1C}",
    "\u{1F}",
    " \u{A0}",
    "\u{A0} ",
    "\u{3000}\n",
    "\n\u{2028}",
];
const DIGITS: &[&str] = &[
    "0",
    "7",
    "42",
    "1999",
    "1234567890",
    "1,000",
    "٣",
    "१२३",
    "๔",
    "½",
    "Ⅷ",
    "²",
    "①",
    "〇",
    "一二",
    "𝟙",
    "৪৫",
    "1st",
    "v2",
];
const CONTROL: &[&str] = &[
    "\0",
    "\u{1}",
    "\u{7}",
    "\u{1B}[0m",
    "\u{7F}",
    "\u{80}",
    "\u{9F}",
    "\u{FFFD}",
    "\u{FFFF}",
    "\u{FDD0}",
    "\u{10FFFF}",
    "\u{E000}",
];
const SPECIAL: &[&str] = &[
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|im_",
    "end|>",
    "<|im_start|",
    "<<think>>",
    "<think",
    "</think></think>",
    "<|im_end|><|im_end|>",
    "<|im_start|>user\n",
    "<think>\n\n</think>\n\n",
    " <think> ",
    "<THINK>",
    "<|IM_END|>",
];

/// A string of pieces from all groups, or mostly from one.
pub(crate) fn text(random: &mut Random) -> String {
    let groups = [WORDS, CODE, OTHER, EMOJI, SPACE, DIGITS, CONTROL, SPECIAL];
    let favourite = groups[random.below(groups.len())];
    let mut out = String::new();
    for _ in 0..1 + random.below(14) {
        match random.below(10) {
            0..4 => out.push_str(random.pick(favourite)),
            4..6 => out.push_str(random.pick(SPACE)),
            6 => out.push_str(random.pick(WORDS)),
            7 => out.push(' '),
            8 => {
                let group = groups[random.below(groups.len())];
                out.push_str(random.pick(group));
            }
            // Any character at all, half of them from the first planes' ends where scripts are dense.
            _ => {
                let limit = if random.below(2) == 0 { 0x3100 } else { 0x11_0000 };
                out.extend(char::from_u32(random.below(limit) as u32));
            }
        }
    }
    out
}

/// Bytes with broken UTF-8: noise, truncated text, or text with bytes replaced.
pub(crate) fn bytes(random: &mut Random) -> Vec<u8> {
    let mut out = text(random).into_bytes();
    match random.below(3) {
        0 => out = (0..1 + random.below(40)).map(|_| random.next() as u8).collect(),
        1 => out.truncate(out.len() - random.below(out.len().min(4))),
        _ => {}
    }
    for _ in 0..1 + random.below(3) {
        let at = random.below(out.len());
        out[at] = [0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF5, 0xFF][random.below(9)];
    }
    out
}
