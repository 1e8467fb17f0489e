"""One measurement of llama.cpp in a process of its own; run.py starts it and reads the JSON line that it prints.

Takes one JSON object as its argument. Its "task" is "probe" (what is installed, how many tokens the corpus has in this
model), "decode" or "prefill".
"""

import ctypes
import json
import sys
import time

errors = []


def fail(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(1)


def corpus_text(path):
    """The text as `strata bench --corpus` reads it."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if not path.lower().endswith(".jsonl"):
        return text
    lines = [line for line in text.split("\n") if line.strip()]
    return "".join(json.loads(line)["text"] + "\n" for line in lines)


def main():
    plan = json.loads(sys.argv[1])
    import llama_cpp as L

    @L.llama_log_callback
    def log(level, message, _):
        # 4 is an error, 5 continues the line before.
        if level == 4:
            errors.append(message.decode("utf-8", "replace").strip())

    L.llama_log_set(log, ctypes.c_void_p(0))
    L.llama_backend_init()

    params = L.llama_model_default_params()
    params.n_gpu_layers = 0
    params.vocab_only = plan["task"] == "probe"
    model = L.llama_model_load_from_file(plan["model"].encode(), params)
    if not model:
        fail("llama.cpp cannot load the model" + (": " + errors[0] if errors else ""))

    # Control tokens that the text holds are read as such, as strata does.
    text = corpus_text(plan["corpus"]).encode()
    vocab = L.llama_model_get_vocab(model)
    room = len(text) + 16
    buffer = (L.llama_token * room)()
    count = L.llama_tokenize(vocab, text, len(text), buffer, room, False, True)
    if count < 0:
        fail("llama.cpp cannot cut the corpus into tokens")
    tokens = list(buffer[:count])

    if plan["task"] == "probe":
        print(json.dumps({"tokens": count, "system": L.llama_print_system_info().decode().strip()}))
        return

    prompt, output = plan["prompt"], plan.get("output", 0)
    params = L.llama_context_default_params()
    params.n_ctx = max(512, -(-(prompt + output) // 256) * 256)
    params.n_threads = params.n_threads_batch = plan["threads"]
    batch = min(params.n_batch, params.n_ctx)
    context = L.llama_init_from_model(model, params)
    if not context:
        fail("llama.cpp cannot make a context" + (": " + errors[0] if errors else ""))
    memory = L.llama_get_memory(context)

    def feed(part):
        for first in range(0, len(part), batch):
            piece = part[first : first + batch]
            array = (L.llama_token * len(piece))(*piece)
            if L.llama_decode(context, L.llama_batch_get_one(array, len(piece))) != 0:
                fail("llama.cpp failed to compute" + (": " + errors[0] if errors else ""))
        L.llama_synchronize(context)

    def measure(passage):
        """Tokens per second of one passage: where its prompt starts, where the text that follows does."""
        first, follows = passage
        L.llama_memory_clear(memory, True)
        start = time.perf_counter()
        feed(tokens[first : first + prompt])
        if plan["task"] == "prefill":
            return prompt / (time.perf_counter() - start)
        start = time.perf_counter()
        for token in tokens[follows : follows + output]:
            feed([token])
        return output / (time.perf_counter() - start)

    for passage in plan["warm_up"]:
        measure(passage)
    print(json.dumps({"rate": measure(plan["passage"])}))


main()
