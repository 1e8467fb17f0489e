//! Templates made to exhaust or crash their host end with an error, soon and within bounded memory.
#![allow(clippy::unwrap_used)] // Panics are how tests fail, in their helpers too.

use serde_json::json;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use strata_gguf::{ChatTemplate, RenderOptions, SpecialLiterals, TemplateError};

/// Counts what is allocated, so that each rendering's memory is known.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Held by each test, so that only its own memory is counted.
static ONE: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to the system's allocator with its own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn render(source: &str) -> Result<String, TemplateError> {
    let chat = [json!({"role": "user", "content": "x"})];
    let template = ChatTemplate::new(source)?;
    template.render(&SpecialLiterals::default(), &chat, &RenderOptions::default()).map(|p| p.text().into_owned())
}

/// Renders within the limits, which leave room for a busy machine and an engine that is not optimised.
fn bounded(source: &str) -> Result<String, TemplateError> {
    let shown: String = source.chars().take(90).collect();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let found = render(source);
    let time = start.elapsed();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let left = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    let end = match &found {
        Ok(text) => format!("{} bytes", text.len()),
        Err(e) => e.to_string(),
    };
    println!(
        "{:>5} ms {:>4} MB: {shown} -> {}",
        time.as_millis(),
        peak >> 20,
        end.chars().take(260).collect::<String>()
    );
    assert!(peak < 128 << 20, "{shown}: {peak} bytes");
    assert!(left < 1 << 20, "{shown}: {left} bytes are never freed");
    if let Err(error) = &found {
        let text = error.to_string();
        assert!(text.chars().count() < 400 && !text.contains('\n'), "{text}");
    }
    found
}

fn refused(source: &str) {
    let found = bounded(source).map(|text| text.len());
    assert!(found.is_err(), "{}: {found:?}", source.chars().take(200).collect::<String>());
}

#[test]
fn values_cannot_contain_themselves_or_explode() {
    let _one = ONE.lock();
    for source in [
        "{% set ns=namespace() %}{% set ns.a=ns %}{{ ns }}",
        "{% set ns=namespace() %}{% set ns.a=[ns] %}{{ ns.a==ns.a }}{{ ns.a|string }}",
        "{% set ns=namespace() %}{% set ns.a={'k': ns} %}{{ ns.a }}",
        "{% set ns=namespace() %}{% set ns.a=(ns, 1) %}{{ ns.a }}",
        "{% set ns=namespace() %}{% set o=namespace(a=ns) %}{% set ns.a=o %}",
        "{% set ns=namespace() %}{% for x in [1] %}{% set ns.a=loop %}{{ loop.changed(ns) }}{% endfor %}",
        "{% for x in [1] %}{{ loop.changed(loop) }}{% endfor %}",
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=ns.a+ns.a %}{% endfor %}{{ns.a|length}}",
        "{% set ns=namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a=[ns.a] %}{% endfor %}{{ns.a|length}}",
        "{% set ns=namespace(a=()) %}{% for i in range(100000) %}{% set ns.a=(ns.a, ns.a) %}{% endfor %}{{ns.a|length}}",
        "{% set ns=namespace(a={}) %}{% for i in range(100000) %}{% set ns.a={'a': ns.a} %}{% endfor %}{{ns.a|length}}",
        "{% set ns=namespace(a={}) %}{% for i in range(60) %}{% set ns.a={'a': ns.a, 'b': ns.a} %}{% endfor %}{{ns.a}}",
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=[ns.a,ns.a] %}{% endfor %}{{ns.a==ns.a}}",
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=[ns.a,ns.a] %}{% endfor %}{{ {ns.a: 1} }}",
        "{% set ns=namespace(a='x') %}{% for i in range(60) %}{% set ns.a=[ns.a,ns.a]|string %}{% endfor %}{{ns.a}}",
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=ns.a*2 %}{% endfor %}{{ns.a|length}}",
        "{% set ns=namespace(a=[]) %}{% for i in range(60) %}{% set ns.a=ns.a+ns.a %}{% endfor %}{{ns.a==[]}}{{ 1/0 }}",
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=(ns.a|list)+ns.a[:] %}{% endfor %}",
        "{% set ns=namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a=ns.a|map('string')|list+ns.a %}{% endfor %}",
        "{% set ns=namespace(a='x') %}{% for i in range(60) %}{% set b %}{{ns.a}}{{ns.a}}{% endset %}{% set ns.a=b %}{% endfor %}",
        "{% for i in range(9) %}{% set k = loop.cycle(a=1) %}{% set k = loop.cycle(a=k, b=k) %}{{ k }}{% endfor %}",
        "{% macro m(a, n) %}{% if n %}{{ m([a, a], n-1) }}{% else %}{{ a }}{% endif %}{% endmacro %}{{ m([1], 24) }}",
        "{% macro m(a, n) %}{% if n %}{{ m(a+a, n-1) }}{% else %}{{ a|length }}{% endif %}{% endmacro %}{{ m([1], 40) }}",
        "{% macro m(a) %}{{ m(a~a) }}{% endmacro %}{{ m('x') }}",
        "{% macro m(a) %}{{ m(a) }}{{ m(a) }}{% endmacro %}{{ m('x') }}",
        "{% macro m(a) %}{% call m(a) %}{{ a }}{% endcall %}{{ caller() }}{% endmacro %}{% call m('x') %}y{% endcall %}",
        "{% for x in [[1]] recursive %}{{ loop([x,x]) }}{% endfor %}",
        "{% for x in ['ab'] recursive %}{{ loop('x' * 1000000) }}{% endfor %}",
        "{% for x in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    ] {
        refused(source);
    }
}

#[test]
fn operators_and_helpers_are_paid_for() {
    let _one = ONE.lock();
    for source in [
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ '{:.9999999999f}'.format(1.5) }}",
        "{{ ('{:>9999}' * 100000).format(1) }}",
        "{{ ('{0}' * 100000).format('x' * 1000000) }}",
        "{{ ('{0.a.b.c[d]}' * 1000000).format('x') }}",
        "{{ ('x'*10000000).strip('y'*9999999+'x') }}",
        "{{ ('x'*10000000)|trim('y'*9999999+'x') }}",
        "{{ debug() }}",
        "{% set a='x'*1000000 %}{% set b='x'*999999+'y' %}{% for i in range(300) %}{% for j in range(300) %}{% if a==b %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% set b='x'*999999+'y' %}{% for i in range(300) %}{% for j in range(300) %}{% if a is eq(b) %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% set b='x'*999999+'y' %}{% for i in range(300) %}{% for j in range(300) %}{% if b < a < b %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(900) %}{% for j in range(300) %}{% if a[900000] %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(900) %}{% for j in range(300) %}{% if a[-1] %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(300) %}{% for j in range(300) %}{% if {}[a] %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(300) %}{% for j in range(300) %}{% if a in {} %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(300) %}{% for j in range(300) %}{% if 'y' in a %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(300) %}{% for j in range(300) %}{% if a[:1] %}{% endif %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(300) %}{% for j in range(300) %}{% for x in a %}{% break %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set a='x'*1000000 %}{% for i in range(300) %}{% for j in range(300) %}{{ loop.changed(a, j) }}{% endfor %}{% endfor %}",
        "{% set a=['x'*1000000]*50 %}{% for i in range(300) %}{% for j in range(300) %}{{ a.count('y') }}{{ (a|sort)[0]|length }}{% endfor %}{% endfor %}",
        "{{ ['x'*1000000]*50 }}",
        "{{ (['x'*1000000]*50)|join('y'*1000000) }}",
        "{{ (range(100000)|list)|join('y'*1000) }}",
        "{{ ('y'*1000).join(range(100000)) }}",
        "{{ ('a'*10000000).replace('', 'b'*10000) }}",
        "{{ ('a'*10000000)|replace('a', 'bbbbbbbbbbbbbb') }}",
        "{{ (('a'*30000000).split('')|length) }}",
        "{{ (('a '*15000000)|split|length) }}",
        "{{ (('a\n'*15000000).splitlines()|length) }}",
        "{{ ('a'*60000000)|list|length }}",
        "{{ ('a'*60000000)|sort }}",
        "{{ ('a'*50000000)[::-1][::-1] }}",
        "{{ ('\u{1}'*20000000)|list|string|length }}",
        "{{ ['\u{1}'*20000000]|string|length }}",
        "{{ ['\u{1}'*20000000] ~ '' }}",
        "{{ ['\u{1}'*10000000]|tojson }}",
        "{{ ('\u{1}'*30000000)|tojson(ensure_ascii=true) }}",
        "{{ ('\n'*10000000)|indent(1000000) }}",
        "{{ 'x'|indent(99999999999) }}",
        "{{ 'x'|center(99999999999) }}",
        "{{ 'x'.ljust(99999999999) }}{{ 'x'.zfill(99999999999) }}",
        "{{ ('<'*20000000)|escape }}",
        "{{ range(100000)|batch(1)|list|map('list')|map('batch', 1)|list|string|length }}{{ 1/0 }}",
        "{{ range(10)|batch(99999999, 'x')|list|length }}",
        "{{ range(10)|slice(99999999)|list|length }}",
        "{{ [[1]]|sum(start=[]) }}",
        "{% set a=range(100000) %}{% for i in range(99999) %}{% for j in range(99999) %}{% set x = a.count('') %}{% endfor %}{% endfor %}",
        "{% set d={range(10000): 1} %}{% for i in range(99999) %}{% for j in range(99999) %}{% set x = dict(d) %}{% endfor %}{% endfor %}",
        "{% set d={range(10000): 1} %}{% for i in range(99999) %}{% for j in range(99999) %}{% set x = dict(**d) %}{% endfor %}{% endfor %}",
        "{% set d={range(10000): 1} %}{% for i in range(99999) %}{% for j in range(99999) %}{% set x = d|items|list %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = range(100000)|last %}{% endfor %}{% endfor %}",
        "{{ raise_exception(['\u{1}'*30000000]) }}",
        "{{ [range]|length }}",
        "{{ 'x' * 99999999999 }}{{ 'x' * 1000000000 }}",
        "{{ range(99999999999999) }}",
        "{{ range(-9223372036854775807, 9223372036854775807, 1)|length }}",
        "{{ strftime_now('%A' * 30000000) }}",
        "{{ dict(*range(99)) }}",
        "{{ '%9999999999d'|format(1) }}{{ '%*d'|format(9999999999, 1) }}",
        "{{ '%*d'|format(9999999999, 1) }}",
        "{{ ('%s' * 1000000)|format('x') }}",
        "{% autoescape true %}{{ '<' }}{% endautoescape %}",
        "{{ loop.cycle() }}",
        "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}",
        "{% for i in [1] %}{% with %}{% break %}{% endwith %}{% endfor %}{{ 1/0 }}",
        "{% include 'chat' %}",
        "{% extends 'chat' %}",
        "{{ ([2]*100000000) == ([2]*100000000) }}",
        "{{ (((1,)*10000)*10000)|length }}",
        "{% set x=[2] %}{{ (x*100000000) == (x*100000000) }}",
        "{{ messages|tojson(indent='x'*30000000) }}",
        "{% set b=['x'*1000000] %}{% for i in range(999) %}{{ 1|tojson(separators=(b,b)) }}{% endfor %}",
        "{{ range(100000)|list|tojson(separators=('x'*100000, 'y')) }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% macro f() %}{{ i }}{% endmacro %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns=namespace(a='x'*1000) %}{% for i in range(100000) %}{% for j in range(100000) %}{% set ns.a = [ns.a ~ j] | string %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ messages|tojson }}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ 'a b c d e f'.split(' ')|map('upper')|join(',') }}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ range(1000)|list }}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ 1e300|round(1000) }}{{ 1e300|round(-200) }}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ '{:9999f}{:.9999f}'.format(1e300, 1e-300) }}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ strftime_now('%A %B %c %d') }}{% endfor %}{% endfor %}",
    ] {
        refused(source);
    }
    // A long raw text in a loop, kept and printed.
    let raw = "r".repeat(400_000);
    refused(&format!("{{% for i in range(99999) %}}{raw}{{% endfor %}}"));
    refused(&format!("{{% set x %}}{{% for i in range(99999) %}}{raw}{{% endfor %}}{{% endset %}}"));
    refused(&format!("{{% for i in range(99999) %}}{{% set x %}}{raw}{{% endset %}}{{% endfor %}}"));
    // Long keys and names.
    let name = "n".repeat(200_000);
    refused(&format!("{{% for i in range(99999) %}}{{{{ {name} }}}}{{% endfor %}}"));
    refused(&format!(
        "{{% for i in range(99999) %}}{{% for j in range(99999) %}}{{{{ i['{name}'] }}}}{{% endfor %}}{{% endfor %}}"
    ));
    let path = "a.".repeat(100_000);
    refused(&format!("{{{{ range(100000)|map(attribute='{path}')|list }}}}"));
    refused(&format!("{{{{ range(100000)|selectattr('{path}')|list }}}}"));
    refused(&format!("{{{{ range(100000)|sort(attribute='{path}')|list }}}}{{{{ 1/0 }}}}"));
    // Many blocks and keyword arguments in few instructions.
    let fill = |body: &str| {
        format!("{{% for i in range(99999) %}}{{% for j in range(99999) %}}{body}{{% endfor %}}{{% endfor %}}")
    };
    refused(&fill(&"{% with %}{% endwith %}".repeat(20_000)));
    refused(&fill(&"{% set x %}{% endset %}".repeat(20_000)));
    refused(&fill(&"{% if x %}{% endif %}".repeat(20_000)));
    refused(&fill(&"{% macro f() %}{% endmacro %}".repeat(15_000)));
    refused(&fill(&"{% for x in [] %}{% endfor %}".repeat(15_000)));
    let named: String = (0..1000).map(|i| format!("a{i}=1,")).collect();
    for call in ["namespace", "dict", "'x'.format", "''.format", "'x'|map", "[]|map", "''.strip", "loop.cycle"] {
        refused(&fill(&format!("{{% set x = {call}({named}) %}}").repeat(50)));
    }
    // Deep frames make each variable slow to find.
    refused(
        "{% for x in [1] recursive %}{% for i in range(99999 if loop.depth == 190 else 1) %}{{ nothing }}{{ nothing }}\
         {{ nothing }}{{ nothing }}{{ nothing }}{{ nothing }}{{ nothing }}{{ nothing }}{% endfor %}\
         {% if loop.depth < 190 %}{{ loop([1]) }}{% else %}{{ 1/0 }}{% endif %}{% endfor %}",
    );
    let nested = "{% with %}".repeat(120);
    let end = "{% endwith %}".repeat(120);
    let find = "{{ nothing }}".repeat(50);
    refused(&format!(
        "{nested}{{% for i in range(99999) %}}{{% for i in range(99999) %}}{find}{{% endfor %}}{{% endfor %}}{end}"
    ));
}

#[test]
fn long_chains_do_not_overflow_the_stack() {
    let _one = ONE.lock();
    let chain = |first: &str, link: &str, n: usize, last: &str| format!("{{{{ {first}{}{last} }}}}", link.repeat(n));
    // Longer than is accepted, and as long.
    for n in [100_000, 50_000, 10_000, 4_000, 2_000, 1_300] {
        for (first, link, last) in [
            ("1", "+1", ""),
            ("x", "+1", ""),
            ("", "not ", "1"),
            ("", "-", "1"),
            ("", "-", "x"),
            ("a", ".a", ""),
            ("a", "[0]", ""),
            ("a", "()", ""),
            ("1", "|string", ""),
            ("1", " is defined", ""),
            ("1", " and 1", ""),
            ("x", " or x", ""),
            ("1", " ~ 1", ""),
            ("x", "**x", ""),
            ("x", "<x", ""),
            ("", "1 if 1 else ", "1"),
            ("1", " if 1", ""),
            ("", "x if x else ", "x"),
            ("", "(", "1"),
            ("", "[", "1"),
            ("", "{1:", "1"),
            ("", "a(", "1"),
            ("'", "a", "'"),
            ("", "'a' ", ""),
            ("[", "1,", "]"),
            ("[", "x,", "]"),
            ("{", "1:1,", "}"),
            ("[", "[1],", "]"),
        ] {
            let source = chain(first, link, n, last);
            match link {
                "a" => drop(bounded(&source)),
                _ if n > 4_096 => refused(&source),
                _ => drop(bounded(&source)),
            }
        }
        let open = |link: &str| link.repeat(n);
        let _ = bounded(&open("{% if x %}"));
        let _ = bounded(&format!("{{% if x %}}{}{{% endif %}}", open("{% elif x %}")));
        let _ = bounded(&format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(n / 4)));
        let _ = bounded(&open("{% if x %}{% else %}"));
        let _ = bounded(&open("{% for x in y %}"));
        let _ = bounded(&open("{% set x %}"));
        let _ = bounded(&open("{% macro f() %}{{ a }}"));
        let _ = bounded(&open("{% call f() %}"));
        let _ = bounded(&open("{% filter upper %}"));
        let _ = bounded(&format!("{{% for {}x in y %}}", open("(")));
        let _ = bounded(&format!("{{% set {}x = y %}}", open("(")));
        let _ = bounded(&format!("{{% set {}x = y %}}", open("x.")));
        let _ = bounded(&format!("{{% filter upper{} %}}x{{% endfilter %}}", open("|upper")));
        let _ = bounded(&open("{{x}}"));
        let _ = bounded(&open("{%set x=1%}"));
        let _ = bounded(&open("{"));
        let _ = bounded(&open("{{'\n"));
        let _ = bounded(&open("{#\n"));
        let _ = bounded(&open("{#-\n"));
        let _ = bounded(&open("{% raw %}\n"));
        let _ = bounded(&open("\n"));
        let _ = bounded(&open("  \n{%- if x -%} {%- endif -%}"));
    }
    refused(&chain("1", "+1", 100_000, ""));
    // Many of the longest.
    for link in ["+1", " ~ 1", " ~ x", "-x"] {
        for first in ["1", "x"] {
            refused(&chain(first, link, 1_500, "").repeat(150_000 / link.len() / 1000));
        }
    }
    refused(&"x".repeat(1 << 20));
}
