// Light colouring of code: comments, strings, numbers, keywords, calls. One scanner with a table of languages;
// it need not understand a program, only help the eye.

const words = (text) => new Set(text.split(" "));

const C_LIKE = "break case const continue default do else enum extern for goto if return sizeof static struct switch typedef union while";
const KEYWORDS = {
  rust: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while"),
  python: words("and as assert async await break class continue def del elif else except False finally for from global if import in is lambda match case None nonlocal not or pass raise return True try while with yield self"),
  js: words("async await break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of private protected public readonly return set static super switch this throw true try type typeof undefined var void while with yield as declare namespace abstract"),
  c: words(`${C_LIKE} alignas auto bool catch char class constexpr delete double explicit false final float friend inline int long mutable namespace new noexcept nullptr operator override private protected public short signed template this throw true try typename unsigned using virtual void volatile NULL`),
  java: words(`${C_LIKE} abstract assert boolean byte catch char class double extends final finally float implements import instanceof int interface long native new null package private protected public record sealed short super synchronized this throw throws true false try var void volatile fun val when object override data companion is in as func guard protocol extension self nil init`),
  csharp: words(`${C_LIKE} abstract as async await base bool byte catch char class decimal delegate double event explicit false finally fixed float foreach get implicit in int interface internal is lock long namespace new null object operator out override params private protected public readonly record ref sealed set short string this throw true try typeof uint ulong using var virtual void when where yield`),
  go: words("break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false iota"),
  shell: words("if then else elif fi for while until do done case esac in function return local export readonly declare set unset shift exit source alias echo cd test sudo"),
  sql: words("select from where group by order having limit offset insert into values update set delete create table index view drop alter add column primary key foreign references not null unique default join left right inner outer full on as and or in is like between case when then else end union all distinct with exists count sum avg min max asc desc begin commit rollback"),
  ruby: words("alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor local function repeat"),
  data: words("true false null yes no on off"),
  css: words("important media keyframes supports import from to and not only"),
  php: words(`${C_LIKE} abstract and array as catch class clone declare echo elseif extends false final finally fn foreach function global implements instanceof interface namespace new null or private protected public readonly require require_once include throw trait true try use var yield`),
};

const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|(?![\s\S]))`;
const HASH = String.raw`#[^\n]*`;
const QUOTES = String.raw`"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?`;
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|(?![\s\S]))|'''[\s\S]*?(?:'''|(?![\s\S]))`;
const BACKTICK = "`(?:[^`\\\\]|\\\\[\\s\\S])*`?";

const LANGUAGES = {
  rust: { comment: SLASHES, string: String.raw`b?r(#*)"[\s\S]*?"\1|"(?:[^"\\]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[^\n]{1,8})'`, keywords: KEYWORDS.rust },
  python: { comment: HASH, string: `${TRIPLE}|${QUOTES}`, keywords: KEYWORDS.python },
  js: { comment: SLASHES, string: `${BACKTICK}|${QUOTES}`, keywords: KEYWORDS.js },
  c: { comment: SLASHES, string: QUOTES, keywords: KEYWORDS.c, directive: String.raw`^[ \t]*#[a-z]+` },
  java: { comment: SLASHES, string: `${TRIPLE}|${QUOTES}`, keywords: KEYWORDS.java },
  csharp: { comment: SLASHES, string: QUOTES, keywords: KEYWORDS.csharp },
  go: { comment: SLASHES, string: `${BACKTICK}|${QUOTES}`, keywords: KEYWORDS.go },
  php: { comment: `${SLASHES}|${HASH}`, string: QUOTES, keywords: KEYWORDS.php },
  // In a shell a # inside a word is no comment.
  shell: { comment: String.raw`(?<![^\s;])#[^\n]*`, string: String.raw`"(?:[^"\\]|\\[\s\S])*"?|'[^']*'?`, keywords: KEYWORDS.shell, variable: String.raw`\$(?:\w+|\{[^}\n]*\}|[@#?$!*-])` },
  sql: { comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|(?![\s\S]))`, string: QUOTES, keywords: KEYWORDS.sql, anyCase: true },
  ruby: { comment: String.raw`#[^\n]*|--[^\n]*`, string: QUOTES, keywords: KEYWORDS.ruby },
  json: { comment: SLASHES, string: QUOTES, keywords: KEYWORDS.data, property: true },
  yaml: { comment: String.raw`(?<![^\s])#[^\n]*`, string: QUOTES, keywords: KEYWORDS.data, key: String.raw`^[ \t]*(?:- )*[\w.\/-]+(?=[ \t]*[:=])` },
  css: { comment: SLASHES, string: QUOTES, keywords: KEYWORDS.css, key: String.raw`[\w-]+(?=[ \t]*:[^:])` },
  html: { comment: String.raw`<!--[\s\S]*?(?:-->|(?![\s\S]))`, string: String.raw`(?<==)(?:"[^"]*"?|'[^']*'?)`, keywords: new Set(), variable: String.raw`<\/?[\w:-]+|\/?>` },
  diff: { lines: true },
};

const NAMES = {
  rs: "rust", py: "python", python3: "python", javascript: "js", ts: "js", typescript: "js", jsx: "js", tsx: "js", mjs: "js", "c++": "c", cpp: "c", h: "c", hpp: "c", cuda: "c", cu: "c", objc: "c", glsl: "c",
  kotlin: "java", kt: "java", swift: "java", scala: "java", dart: "java", cs: "csharp", "c#": "csharp", golang: "go", sh: "shell", bash: "shell", zsh: "shell", console: "shell", fish: "shell", dockerfile: "shell",
  makefile: "shell", powershell: "shell", mysql: "sql", postgres: "sql", sqlite: "sql", rb: "ruby", lua: "ruby", jsonc: "json", json5: "json", yml: "yaml", toml: "yaml", ini: "yaml", scss: "css", less: "css",
  xml: "html", svg: "html", vue: "html", patch: "diff",
};

const compiled = new Map();

function languageOf(name) {
  const key = NAMES[name.toLowerCase()] ?? name.toLowerCase();
  if (!Object.hasOwn(LANGUAGES, key)) return null;
  if (!compiled.has(key)) {
    const language = LANGUAGES[key];
    const never = "(?!)";
    const groups = [
      ["comment", language.comment], ["string", language.string], ["directive", language.directive], ["variable", language.variable], ["key", language.key],
      ["number", String.raw`(?<![\w.])(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*`], ["word", String.raw`[A-Za-z_]\w*`],
    ];
    const pattern = groups.map(([name, source]) => `(?<${name}>${(source ?? never).replaceAll("\\1", "\\k<hash>").replace("(#*)", "(?<hash>#*)")})`).join("|");
    compiled.set(key, { ...language, pattern: language.lines ? null : new RegExp(pattern, "gm") });
  }
  return compiled.get(key);
}

function kindOf(groups, language, code, end) {
  if (groups.comment !== undefined) return "comment";
  if (groups.string !== undefined) return language.property && /^\s*:/.test(code.slice(end, end + 20)) ? "key" : "string";
  if (groups.directive !== undefined) return "keyword";
  if (groups.variable !== undefined) return "call";
  if (groups.key !== undefined) return "key";
  if (groups.number !== undefined) return "number";
  const word = language.anyCase ? groups.word.toLowerCase() : groups.word;
  if (language.keywords.has(word)) return "keyword";
  if (/^[ \t]*!?\(/.test(code.slice(end, end + 10))) return "call";
  return /^[A-Z]\w*[a-z]/.test(groups.word) ? "type" : "";
}

/** The code in pieces [text, kind]; kind is "" or comment, string, number, keyword, call, type, key, added, removed. */
export function highlight(code, name) {
  const language = languageOf(name);
  if (!language) return [[code, ""]];
  if (language.lines) {
    const kind = (line) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "comment" : "");
    return code.split(/(?<=\n)/).map((line) => [line, kind(line)]);
  }
  const pieces = [];
  let at = 0;
  for (const match of code.matchAll(language.pattern)) {
    const end = match.index + match[0].length;
    const kind = kindOf(match.groups, language, code, end);
    if (kind === "") continue;
    if (match.index > at) pieces.push([code.slice(at, match.index), ""]);
    pieces.push([match[0], kind]);
    at = end;
  }
  if (at < code.length) pieces.push([code.slice(at), ""]);
  return pieces;
}
