"""Tests the pages' scripts one by one, inside the browser, since they are written for it: `pytest test_scripts.py`."""

from mock import MARKDOWN

RENDER = """async texts => {
    const { MarkdownView } = await import('/js/render.js');
    return texts.map(text => {
        const root = document.createElement('div');
        new MarkdownView(root).update(text);
        for (const e of root.querySelectorAll('[class], [tabindex], [rel], [target]'))
            for (const name of ['class', 'tabindex', 'rel', 'target', 'role', 'aria-label', 'scope']) e.removeAttribute(name);
        for (const caption of root.querySelectorAll('figcaption')) caption.remove();
        return root.innerHTML;
    });
}"""

CASES = [
    ("plain text", "<p>plain text</p>"),
    ("*a* _b_ **c** __d__ ***e*** ~~f~~", "<p><em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> <em><strong>e</strong></em> <del>f</del></p>"),
    ("snake_case_name and 2*3*4 and 5 * 6", "<p>snake_case_name and 2<em>3</em>4 and 5 * 6</p>"),
    ("**open and *half* done", "<p>**open and <em>half</em> done</p>"),
    ("**bold with *nested* words**", "<p><strong>bold with <em>nested</em> words</strong></p>"),
    ("`a*b*c` and ``x ` y``", "<p><code>a*b*c</code> and <code>x ` y</code></p>"),
    ("an ` unclosed tick", "<p>an ` unclosed tick</p>"),
    (r"\*not\* \[a](b) 1\. \\", r"<p>*not* [a](b) 1. \</p>"),
    ("<b>bold</b> &amp; &lt;i&gt; &#65; &copy; &unknown;", "<p>&lt;b&gt;bold&lt;/b&gt; &amp; &lt;i&gt; A © &amp;unknown;</p>"),
    ("one  \ntwo\\\nthree\nfour<br>five", "<p>one<br>two<br>three\nfour<br>five</p>"),
    ('[a *b*](https://x.org/(y) "t")', '<p><a href="https://x.org/(y)" title="t">a <em>b</em></a></p>'),
    ("[a](javascript:alert(1)) [b](data:text/html,x) [c](/local) [d](JaVaScRiPt:x)", "<p><span>a (javascript:alert(1))</span> <span>b (data:text/html,x)</span> <span>c (/local)</span> <span>d (JaVaScRiPt:x)</span></p>"),
    ("![cat](https://x.org/c.png)", '<p><a href="https://x.org/c.png">Picture: cat</a></p>'),
    ("See https://x.org/a_b_c?d=e*f, (https://y.org/z).", '<p>See <a href="https://x.org/a_b_c?d=e*f">https://x.org/a_b_c?d=e*f</a>, (<a href="https://y.org/z">https://y.org/z</a>).</p>'),
    ("<https://x.org> <mailto:a@b.org> <javascript:x>", '<p><a href="https://x.org">https://x.org</a> <a href="mailto:a@b.org">mailto:a@b.org</a> &lt;javascript:x&gt;</p>'),
    ("[x] [y [z](https://z.org)", '<p>[x] [y <a href="https://z.org">z</a></p>'),
    ("$5 and $10, $x_1 * y_1$, \\(a_b*c*\\), $$q$$", "<p>$5 and $10, <code>x_1 * y_1</code>, <code>a_b*c*</code>, <code>q</code></p>"),
    ("# One #\n## Two\n####### Seven", "<h2>One</h2><h3>Two</h3><p>####### Seven</p>"),
    ("#hashtag", "<p>#hashtag</p>"),
    ("text\n---\nmore\n***", "<p>text</p><hr><p>more</p><hr>"),
    ("```\na <b>\n\n\tc\n```\nafter", "<figure><pre><code>a &lt;b&gt;\n\n\tc</code></pre></figure><p>after</p>"),
    ("~~~py\nx = 1\n``` goes on\n~~~", "<figure><pre><code>x = <span>1</span>\n``` goes on</code></pre></figure>"),
    ("````md\n```\ninner\n```\n````", "<figure><pre><code>```\ninner\n```</code></pre></figure>"),
    ("```rust\nlet a", "<figure><pre><code><span>let</span> a</code></pre></figure>"),
    ("- a\n- b\n  - c\n\n    d\n- e", "<ul><li>a</li><li>b<ul><li><p>c</p><p>d</p></li></ul></li><li>e</li></ul>"),
    ("1. a\n2. b\n  - c\n3. d", "<ol><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ol>"),
    ("7) a\n8) b", '<ol start="7"><li>a</li><li>b</li></ol>'),
    ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    ("1. run\n   ```sh\n   ls\n   ```\n2. done", "<ol><li>run<figure><pre><code>ls</code></pre></figure></li><li>done</li></ol>"),
    ("In 1999. was\n2000. not a list", "<p>In 1999. was\n2000. not a list</p>"),
    ("**Bold:** text\n* item", "<p><strong>Bold:</strong> text</p><ul><li>item</li></ul>"),
    ("> a\nlazy\n>\n> - b\n\nout", "<blockquote><p>a\nlazy</p><ul><li>b</li></ul></blockquote><p>out</p>"),
    ("|a|b|\n|-|:-:|\n|`x|y`|z|\n|1|\n\nend", "<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>x|y</code></td><td>z</td></tr><tr><td>1</td><td></td></tr></tbody></table></div><p>end</p>"),
    ("a | b\nno table", "<p>a | b\nno table</p>"),
    ("\\[\nx_1 * y\n\\]\nafter", "<pre>x_1 * y</pre><p>after</p>"),
    ("", ""),
]


def test_markdown_becomes_these_elements(page):
    got = page.evaluate(RENDER, [text for text, _ in CASES])
    wrong = [(text, want, have) for (text, want), have in zip(CASES, got, strict=True) if want != have]
    assert wrong == []


def test_a_growing_text_ends_as_the_whole_would(page):
    """Every prefix of a text is shown as if it had come at once."""
    differing = page.evaluate(
        """async text => {
            const { MarkdownView } = await import('/js/render.js');
            const grown = document.createElement('div');
            const view = new MarkdownView(grown);
            const bad = [];
            for (let i = 1; i <= text.length; i += 1) {
                view.update(text.slice(0, i));
                const whole = document.createElement('div');
                new MarkdownView(whole).update(text.slice(0, i));
                if (whole.innerHTML !== grown.innerHTML) bad.push(i);
            }
            return bad;
        }""",
        MARKDOWN,
    )
    assert differing == []


def test_blocks_that_do_not_change_keep_their_elements(page):
    kept = page.evaluate(
        """async () => {
            const { MarkdownView } = await import('/js/render.js');
            const root = document.createElement('div');
            const view = new MarkdownView(root);
            view.update('first\\n\\n```js\\nlet a;\\n```\\n\\nthi');
            const before = [...root.children];
            view.update('first\\n\\n```js\\nlet a;\\n```\\n\\nthird');
            return [...root.children].map((e, i) => e === before[i]);
        }"""
    )
    assert kept == [True, True, False]


PIECES = ["[", "]", "![", "*a ", "a* ", "**a *b ", "_", "~~", "`", "` `` ", "<", "&", "$$ ", "$a", "\\(", "> ", "- ", "1. ", "  - a\n", "|", "|a\n|-\n", "# ", "[a](", "http", "https://a.b ", "\n", "```\n", '"', "(", "a\n"]


def test_no_text_stalls_the_page(page):
    """Work must not grow with the square of the text: some of these would run for minutes, past the test's patience."""
    for piece in PIECES:
        same = page.evaluate(
            """async piece => {
                const { MarkdownView } = await import('/js/render.js');
                const text = piece.repeat(Math.ceil(60000 / piece.length));
                new MarkdownView(document.createElement('div')).update(text);
                const root = document.createElement('div');
                new MarkdownView(root).update('~~~~rust\\nx' + text);
                return root.querySelector('pre').textContent === 'x' + text;
            }""",
            piece,
        )
        assert same, piece


def test_event_streams_may_be_cut_anywhere(page):
    stream = ": hello\n\nevent: status\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\ndata\n\nid: 3\nretry: 5\n\ndata: é\n\n"
    want = [{"comment": "hello"}, {"event": "status", "data": '{"a":\n1}'}, {"event": "message", "data": "x"}, {"event": "message", "data": ""}, {"event": "message", "data": "é"}]
    got = page.evaluate(
        """async text => {
            const { EventParser } = await import('/js/sse.js');
            const results = [];
            for (let cut = 0; cut <= text.length; cut += 1) {
                const parser = new EventParser();
                results.push([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]);
            }
            return results;
        }""",
        stream,
    )
    assert all(events == want for events in got)


def test_code_keeps_its_text_in_every_language(page):
    """Colouring must neither lose nor add a character."""
    code = """// a\n# b\n-- c\n<!-- d -->\nfn f(x: &'a str) { r#"raw "quoted""#; 'c'; 0x1F_u8; 1.5e-3 }\ndef g(): \"\"\"doc\nmore\"\"\"\n$HOME ${x} "open\nconst s = `t ${u}`;\n<a href="x">y</a>\n{"k": [1, null]}\nkey: value\n+ added\n- removed\n"""
    languages = "rust py js ts c cpp java kotlin cs go php sh sql rb json yaml toml css html xml diff lua swift unknown".split()
    got = page.evaluate(
        """async ([code, languages]) => {
            const { highlight } = await import('/js/highlight.js');
            return languages.map(name => highlight(code, name));
        }""",
        [code, languages],
    )
    for name, pieces in zip(languages, got, strict=True):
        assert "".join(text for text, _ in pieces) == code, name
        assert (len(pieces) > 3) == (name != "unknown"), name


def test_conversations_are_checked_before_they_are_taken(page):
    verdicts = page.evaluate(
        """async () => {
            const { addNode, isConversation, newConversation, removeNode, shownPath, switchVersion } = await import('/js/tree.js');
            const good = newConversation('s');
            const a = addNode(good, 'root', { role: 'user', content: 'a' });
            const b = addNode(good, a.id, { role: 'assistant', content: 'b' });
            const c = addNode(good, a.id, { role: 'assistant', content: 'c' });
            const path = shownPath(good).map(n => n.content).join('');
            switchVersion(good, c, -1);
            const other = shownPath(good).map(n => n.content).join('');
            const change = f => { const copy = structuredClone(good); f(copy); return isConversation(copy); };
            const removed = structuredClone(good);
            removeNode(removed, b.id);
            return {
                path, other, good: isConversation(good), removed: isConversation(removed) && shownPath(removed).map(n => n.content).join(''),
                cycle: change(x => { x.nodes[b.id].children.push(a.id); }),
                twice: change(x => { x.nodes.root.children.push(a.id); }),
                missing: change(x => { delete x.nodes[c.id]; }),
                role: change(x => { x.nodes[c.id].role = 'system'; }),
                proto: change(x => { x.nodes.root.children.push('__proto__'); }),
                content: change(x => { x.nodes[c.id].content = 5; }),
                tools: change(x => { x.nodes[c.id].tools = [{ id: 'a' }]; }),
                nothing: isConversation(null),
            };
        }"""
    )
    assert verdicts == {
        "path": "ac", "other": "ab", "good": True, "removed": "ac", "cycle": False, "twice": False,
        "missing": False, "role": False, "proto": False, "content": False, "tools": False, "nothing": False,
    }


def test_what_the_server_reports_is_read(page):
    """The status and timings as the server sends them."""
    status = {
        "uptime": 5, "share": 0.5, "model": "m", "info": {"id": "m", "context": 64, "can_think": True, "vocab": 3},
        "speeds": [{"prompt_rate": 1, "output_rate": 1}, {"prompt_rate": 9, "output_rate": 3}],
        "rounds": [{"window": 2, "committed": 1, "branches": [{"name": "cpu_experts", "ms": 2}, {"name": "draft", "ms": 1}]}],
        "tiers": {"ram": 10, "vram": 0, "file": 7}, "conversations": {"bytes": 3},
        "expert_cache": [{"layer": 2, "hits": 3, "lookups": 4}, {"layer": 0, "hits": 0, "lookups": 0}], "expert_cache_on_paper": True,
    }
    script = """async values => {
        const { readStatus, readCost, readProgress } = await import('/js/shapes.js');
        return [readStatus(values[0]), readStatus({ expert_cache: [] }), readCost(values[1], values[2]), readCost(values[1]), readCost(),
            readProgress({ comment: 'prompt 12/300' }), readProgress({ comment: 'alive' }), readProgress({})];
    }"""
    timings = {"cache_n": 10, "prompt_n": 20, "prompt_ms": 2000, "predicted_n": 11, "predicted_ms": 5000, "queue_ms": 40}
    usage = {"prompt_tokens": 30, "completion_tokens": 11, "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 4}}
    read, empty, cost, bare, none, *progress = page.evaluate(script, [status, timings, usage])
    want = {
        "uptime_seconds": 5, "load_share": 0.5, "model": {"id": "m", "context": 64, "can_think": True},
        "speeds": {"prompt_per_second": 9, "output_per_second": 3}, "rounds": [{"cpu_experts": 2, "draft": 1}],
        "memory": {"weights_bytes": 10, "vram_bytes": 0, "file_bytes": 7, "conversations_bytes": 3},
        "cache": {"hit_rate_per_layer": [None, None, 0.75], "on_paper": True},
    }
    assert {key: read[key] for key in want} == want
    assert (empty["cache"], empty["model"], empty["rounds"], empty["speeds"]) == (None, None, [], {})
    want = {"prompt": 30, "cached": 10, "promptSeconds": 2, "output": 11, "outputSeconds": 5, "promptRate": 10, "outputRate": 2, "queueSeconds": 0.04}
    assert {key: cost[key] for key in want} == want == {key: bare[key] for key in want}
    assert cost["thinking"] == 4
    assert none is None
    assert progress == [{"read": 12, "of": 300}, None, None]
