// The page of `zellige play`: what is asked for, one or two panes with the report's player in each, and what is clicked there.
// All text is set as text, never as HTML; a draw is a stream of lines that ends when its request is aborted.
(async () => {
  "use strict";
  const $ = id => document.getElementById(id);
  const make = (tag, more = {}) => Object.assign(document.createElement(tag), more);
  const say = (text, wrong = false) => { $("status").textContent = text; $("status").className = wrong ? "wrong" : ""; };
  const models = await (await fetch("/api/models")).json();

  // the lines of an answer, each parsed as it arrives; an error is thrown as the server says it
  async function* lines(path, body, signal) {
    const answer = await fetch(path, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body), signal});
    if (!answer.ok) throw new Error((await answer.json()).error);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const {value, done} = await reader.read();
      const parts = (rest + (value ?? "")).split("\n");
      rest = parts.pop();
      for (const part of parts) {
        const line = JSON.parse(part);
        if (line.error) throw new Error(line.error);
        yield line;
      }
      if (done) return;
    }
  }

  class Pane {
    constructor(number) {
      this.root = $("pane").content.cloneNode(true).firstElementChild;
      this.letter = "AB"[number];
      for (const radio of this.root.querySelectorAll("[type=radio]")) radio.name = `colour-${this.letter}`;
      this.part = name => this.root.querySelector(`[data-part=${name}]`);
      this.part("model").replaceChildren(...models.map(m => make("option", {value: m.number, textContent: `${m.name} (${m.what})`})));
      this.part("model").value = Math.min(number, models.length - 1);
      this.part("model").onchange = () => { this.choose(); panesChanged(); };
      this.part("sampler").onchange = () => this.choices(this.advised());
      this.part("bound").onclick = () => this.bound(false);
      this.part("bracket").onclick = () => this.bound(true);
      this.part("listen").onclick = () => this.listen();
      const text = this.part("text");
      text.removeAttribute("aria-hidden");
      text.tabIndex = 0;
      text.setAttribute("role", "group");
      text.setAttribute("aria-label", "The sample. Arrow keys go from token to token, Enter clicks, L locks, a digit sets a cell.");
      const at = e => this.index.get(e.target.closest("[data-part=text] > span"));
      text.onpointerover = e => { const i = at(e); if (i !== undefined) this.distribution(i); };
      text.onpointerdown = e => {
        const i = at(e);
        if (i === undefined) return;
        e.preventDefault();
        text.focus();
        this.here = i;
        this.distribution(i);
        this.painting = this.press(i, document.querySelector("[name=click]:checked").value);
        if (e.target.hasPointerCapture?.(e.pointerId)) e.target.releasePointerCapture(e.pointerId);
      };
      text.onpointerenter = e => { if (!e.buttons) this.painting = undefined; };
      text.onpointermove = e => {
        const i = at(e);
        if (e.buttons && this.painting !== undefined && i !== undefined && !this.model.running) this.press(i, this.painting.mode, this.painting.on);
      };
      text.onkeydown = e => this.key(e);
      this.choose();
    }

    // another model: its samplers, how its card draws, and an empty board; nothing stays of the one before
    choose() {
      this.silence();
      this.model = models[Number(this.part("model").value)];
      this.part("about").textContent = [this.model.about, this.model.approximate].filter(Boolean).join(" ");
      const of = this.model.samplers.map(s => make("option", {value: s.name, textContent: s.name, title: `error: ${s.error}`}));
      this.part("sampler").replaceChildren(...of);
      this.part("sampler").value = this.model.advice.sampler ?? this.model.sampler;
      if (this.letter === "A") {
        for (const [id, plain] of [["steps", this.model.steps], ["temperature", 1], ["top_p", 1]]) $(id).value = this.model.advice[id] ?? plain;
        $("class").value = "";
      }
      this.choices(this.advised());
      this.part("listen").hidden = this.model.kind !== "roll";
      for (const name of ["bound", "bracket"]) this.part(name).disabled = !this.model.bounded;
      this.part("files").replaceChildren(...this.model.formats.map(({name, missing}) =>
        make("button", {textContent: `save .${name}`, disabled: Boolean(missing), title: missing ?? "", onclick: () => this.save(name)})));
      this.part("missing").textContent = this.model.formats.map(format => format.missing).filter(Boolean).join("\n");
      this.done = null;
      this.clear();
    }

    // what the model's card says of the chosen sampler's options
    advised() {
      return this.part("sampler").value === (this.model.advice.sampler ?? this.model.sampler) ? this.model.advice : {};
    }

    // the fields of the sampler's options; of blocks also those of the one that writes each of them
    choices(before) {
      const sampler = this.part("sampler").value, advised = this.advised();
      const of = (name, all = this.model.samplers) => all.find(s => s.name === name)?.options ?? [];
      this.part("way").textContent = this.model.samplers.find(s => s.name === sampler).about;
      const own = of(sampler), names = own.map(o => o.name);
      const inner = names.includes("block_sampler") ? of(before.block_sampler ?? "ancestral", this.model.inside).filter(o => !names.includes(o.name)) : [];
      this.part("options").replaceChildren(...[...own, ...inner].map(option => {
        const label = make("label"), type = {switch: "checkbox", text: "text"}[option.kind] ?? "number";
        const input = make("input", {type, name: option.name, step: option.kind === "number" ? "any" : 1, placeholder: advised[option.name] ?? option.default ?? ""});
        if (type === "checkbox") input.checked = before[option.name] ?? option.default;
        else input.value = before[option.name] ?? "";
        if (option.name === "block_sampler") input.onchange = () => this.choices(this.options());
        label.append(make("span", {textContent: option.name}), input, make("span", {className: "note", textContent: option.note}));
        return label;
      }));
      this.root.querySelector(".options").hidden = !names.length;
    }

    // those that are not left as they are
    options() {
      const advised = this.advised(), inputs = [...this.part("options").querySelectorAll("input")], value = i => i.type === "checkbox" || (i.type === "number" ? i.valueAsNumber : i.value.trim());
      return Object.fromEntries(inputs.filter(i => i.type === "checkbox" ? i.checked || i.name in advised : i.value.trim()).map(i => [i.name, value(i)]));
    }

    clear() {
      this.abort?.abort();
      this.silence();
      const L = this.model.length, empty = Array(L).fill(null);
      this.tokens = Array(L).fill(-1);
      this.locked = new Set(); this.away = new Set(); this.clashes = new Set();
      this.here = 0;
      this.facts = null;
      this.begin({start: empty, given: Array(L).fill(0), size: L, t: 1, step: 0, steps: 0, calls: 0});
      this.part("numbers").textContent = "";
    }

    // the data of the player, from the first step of a draw
    begin(step) {
      const L = this.model.running ? step.size : this.model.length;
      step = {...step, start: step.start.slice(0, L), given: step.given.slice(0, L)};
      this.sample = {pieces: [...step.start], given: step.given, calls: [step.calls], entropy: Array(L).fill(null), start: step.start, changes: [[]]};
      this.data = {steps: [step.step], t: [step.t], total: step.steps, entropy: 1, kind: this.model.layout, samples: [this.sample]};
      this.details = [new Map()];
      this.size = step.size;
      this.startTokens = this.tokens.slice();
      this.moves = [[]];
      this.player = zelligePlayer(this.root.querySelector(".player"), this.data, {classes: i => this.classes(i), drawn: () => this.number()});
      this.player.choose(0);
      this.player.grow();
    }

    number() {
      const spans = [...this.part("text").querySelectorAll(":scope > span")], cell = this.model.layout?.cell ?? 1;
      if (spans[0] !== this.first || spans.length !== this.index?.size) {
        this.first = spans[0];
        this.index = new Map(spans.map((span, i) => [span, i * cell]));
        spans.forEach((span, i) => { span.title = ""; if (i * cell >= this.size) span.hidden = true; });
      }
    }

    classes(i) {
      return (this.locked.has(i) ? "locked " : "") + (this.away.has(i) ? "away " : "") + (this.clashes.has(i) ? "clash " : "")
        + (this.here === i && document.activeElement === this.part("text") ? "here" : "");
    }

    add(step) {
      step.changes = step.changes.filter(([i]) => i < this.size);
      this.data.steps.push(step.step);
      this.data.t.push(step.t);
      this.data.total = step.steps;
      this.sample.calls.push(step.calls);
      this.sample.changes.push(step.changes.map(([i, , piece]) => [i, piece]));
      this.moves.push(step.changes.map(([i, token]) => [i, token]));
      this.details.push(new Map(step.changes.map(change => [change[0], change])));
      for (const [i, token, piece, , bits] of step.changes) {
        this.tokens[i] = token;
        this.sample.pieces[i] = piece;
        if (bits !== undefined) { this.sample.entropy[i] = bits; this.data.entropy = Math.max(this.data.entropy, bits); }
      }
    }

    // the positions of the word, the pixel, the cell that i stands in
    word(i) {
      const cell = this.model.layout?.cell ?? 1;
      if (!this.model.running) return Array.from({length: cell}, (_, k) => i - i % cell + k);
      const blank = k => /^\s*$/.test(this.sample.pieces[k] ?? "·");
      const starts = k => /^\s/.test(this.sample.pieces[k] ?? "·");
      if (blank(i)) return [i];
      let from = i, to = i;
      while (from > 0 && !starts(from) && !blank(from - 1)) from--;
      while (to + 1 < this.size && !blank(to + 1) && !starts(to + 1)) to++;
      return Array.from({length: to - from + 1}, (_, k) => from + k);
    }

    press(i, mode, on) {
      const places = this.word(i).filter(k => this.tokens[k] >= 0), set = mode === "lock" ? this.locked : this.away;
      if (!places.length || this.abort) return undefined;
      on ??= !set.has(i);
      for (const k of places) {
        if (on) set.add(k); else set.delete(k);
        if (on) (mode === "lock" ? this.away : this.locked).delete(k);
      }
      this.player.grow();
      panesChanged();
      return {mode, on};
    }

    set(i, token, piece) {
      this.tokens[i] = token;
      this.away.delete(i);
      if (token >= 0) this.locked.add(i); else this.locked.delete(i);
      this.clashes.clear();
      const shown = this.tokens.map(t => t >= 0 ? this.model.labels[t] : null);
      this.begin({start: shown, given: this.tokens.map((_, k) => this.locked.has(k) ? 1 : 0), size: this.model.length, t: 1, step: 0, steps: 0, calls: 0});
      panesChanged();
    }

    key(e) {
      const cell = this.model.layout?.cell ?? 1, across = (this.model.layout?.across ?? 1) * cell, roll = this.model.kind === "roll";
      const side = roll ? across : cell, down = roll ? cell : this.model.running ? cell : across;
      const moves = {ArrowLeft: -side, ArrowRight: side, ArrowUp: -down, ArrowDown: down};
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      if (moves[e.key]) this.here = Math.min(this.size - 1, Math.max(0, this.here + moves[e.key]));
      else if (e.key === "Enter") this.press(this.here, "away");
      else if (e.key.toLowerCase() === "l") this.press(this.here, "lock");
      else if (this.model.labels.includes(e.key)) this.set(this.here, this.model.labels.indexOf(e.key));
      else if (this.model.labels.length && ["Backspace", "Delete", "0", "."].includes(e.key)) this.set(this.here, -1);
      else return;
      e.preventDefault();
      e.stopPropagation();
      this.distribution(this.here);
      this.player.draw(this.player.frame);
      this.part("text").focus();
    }

    // the distribution that the token at i was drawn from, at the frame that is shown
    distribution(i) {
      const out = this.part("distribution");
      let k = this.player.frame;
      while (k > 0 && !this.details[k].has(i)) k--;
      const change = this.details[k].get(i);
      if (!change || change.length < 4) {
        const why = this.sample.given[i] ? "was given" : this.tokens[i] < 0 ? "is not drawn yet" : "has no distribution in this step";
        out.textContent = `position ${i + 1} ${why}`;
        return;
      }
      const [, , piece, p, bits, rivals] = change;
      const shown = piece === null ? "·" : piece === " " ? "␣" : piece.replaceAll("\n", "↵");
      const listed = rivals.some(([rival]) => rival === piece) ? rivals : [...rivals, [piece, p]];
      const rows = listed.map(([rival, q]) => {
        const row = make("div", {className: rival === piece ? "chosen" : ""});
        const bar = make("span", {className: "bar"});
        bar.style.width = `${Math.max(1, q * 140)}px`;
        row.append(`${(rival === " " ? "␣" : rival ?? "·").replaceAll("\n", "↵").padEnd(4)}`, bar, `${(100 * q).toFixed(1)}%`);
        return row;
      });
      const head = make("div", {textContent: `position ${i + 1}, step ${this.data.steps[k]}: “${shown}” with ${(100 * p).toFixed(1)}%, entropy ${bits.toFixed(2)} bits`});
      out.replaceChildren(head, ...rows);
    }

    request(fill) {
      const own = {
        model: this.model.number, sampler: this.part("sampler").value, options: this.options(), steps: Number($("steps").value),
        temperature: Number($("temperature").value), top_p: Number($("top_p").value), seed: Number($("seed").value),
      };
      if (this.model.classes.length && $("class").value) own.class = $("class").value;
      if (fill) {
        own.fixed = this.tokens.slice(0, this.size).map((t, i) => this.away.has(i) ? -1 : t);
      } else if (this.locked.size) {
        own.fixed = this.tokens.slice(0, this.size).map((t, i) => this.locked.has(i) ? t : -1);
      } else if (this.model.running) own.text = $("words").value;
      return own;
    }

    async draw(fill) {
      const abort = this.abort = new AbortController(), own = this.request(fill), locked = this.locked;
      this.asked = own;
      this.more = {};
      this.clashes = new Set();
      this.part("numbers").textContent = "";
      try {
        let last = 0;
        for await (const step of lines("/api/draw", own, abort.signal)) {
          if (step.start) {
            this.away = new Set();
            this.drawnBy = step.distribution;
            this.tokens = [...step.from];
            this.begin(step);
            this.here = 0;
          } else this.add(step);
          if (step.tokens) {
            this.done = step;
            this.tokens = step.tokens;
            this.locked = locked;
            for (const i of step.clashes ?? []) this.clashes.add(i);
          }
          const now = performance.now();
          progress(step.step, step.steps);
          if (step.tokens || now - last > 40) { this.player.grow(); last = now; }
        }
        this.tell();
      } finally { this.abort = null; this.player.grow(); }
    }

    // what is known of the draw; `more` of its -log p, by what was asked
    tell(asked, more) {
      const done = this.done, own = this.asked;
      if (!done) return;
      if (asked) this.more[asked] = more;
      const options = Object.entries(own.options).map(([name, value]) => `, ${name} ${value}`).join("");
      const guided = own.temperature !== 1 || own.top_p < 1 || own.options.top_k ? "; tempered or truncated, so not the model's own distribution" : "";
      const nats = done.nats === null ? "" : `-log p of the tokens as they were drawn = ${done.nats.toFixed(1)} nats (${done.drawn} tokens)`;
      const numbers = [done.verdict, nats, ...Object.values(this.more)].filter(Boolean);
      this.facts = [this.model.name, `${own.sampler}${options}, ${done.steps} steps, seed ${own.seed}, temperature ${own.temperature}, top-p ${own.top_p}`, ...numbers];
      this.part("numbers").textContent = [...numbers, `sampled by ${this.drawnBy}${guided}`, `${done.calls} network evaluations, ${done.seconds.toFixed(2)} s`].join("\n");
    }

    // -log p of what was drawn: from above, or from both sides, each with Student's interval over the replicates
    async bound(both) {
      if (!this.done || this.abort) return say("draw first, then ask for -log p", true);
      const abort = this.abort = new AbortController(), n = this.size, above = [], below = [];
      const number = values => {
        const m = values.length, mean = values.reduce((a, b) => a + b, 0) / m;
        const half = 2.36 * Math.sqrt(values.reduce((a, v) => a + (v - mean) ** 2, 0) / (m - 1) / m);
        return values.includes(null) ? "?" : mean.toFixed(1) + (m > 1 ? ` ± ${half.toFixed(1)}` : "");
      };
      busy(true);
      say("waiting");
      try {
        const body = {model: this.model.number, tokens: this.tokens.slice(0, n), held: this.sample.given.slice(0, n), both};
        if (this.asked.class) body.class = this.asked.class;
        const drawn = body.held.filter(g => !g).length, given = drawn < n ? ", given the rest" : "";
        for await (const line of lines("/api/bound", body, abort.signal)) {
          above.push(line.nats);
          below.push(line.below);
          progress(above.length, line.exact ? 1 : 8);
          const mean = above.reduce((a, b) => a + b, 0) / above.length, unit = this.model.unit.replace("nats/", "bits/");
          const around = line.exact ? "" : "; 95% over the draws", sign = line.exact ? "=" : "≤";
          this.tell(both ? "bracket" : "bound", both && !line.exact
            ? `${number(below)} ≤ -log p ≤ ${number(above)} nats${given} (of ${line.distribution}${around})`
            : `-log p ${sign} ${number(above)} nats, ${(mean / Math.LN2 / drawn).toFixed(3)} ${unit}${given} (${line.distribution}${around})`);
        }
        say("done");
      } catch (error) { say(abort.signal.aborted ? "stopped" : error.message, !abort.signal.aborted); }
      finally { this.abort = null; busy(false); }
    }

    silence() {
      clearInterval(this.beat);
      this.sound?.close();
      this.sound = null;
      this.part("listen").textContent = "Listen";
      this.root.querySelector(".now")?.style.removeProperty("visibility");
    }

    // each note a triangle wave with a short rise and fall, 100 quarter notes a minute; a line goes along
    listen() {
      if (this.sound) return this.silence();
      if (!this.done?.notes) return say("draw first, then listen", true);
      const sound = this.sound = new AudioContext(), sixteenth = 60 / 100 / 4, begin = sound.currentTime + 0.1;
      let end = begin;
      for (const [first, length, pitch] of this.done.notes.flat()) {
        const tone = sound.createOscillator(), loud = sound.createGain(), from = begin + first * sixteenth, to = from + length * sixteenth;
        tone.type = "triangle";
        tone.frequency.value = 440 * 2 ** ((pitch - 69) / 12);
        loud.gain.setValueAtTime(0, from);
        loud.gain.linearRampToValueAtTime(0.12, from + 0.02);
        loud.gain.setValueAtTime(0.12, Math.max(from + 0.02, to - 0.04));
        loud.gain.linearRampToValueAtTime(0, to);
        tone.connect(loud).connect(sound.destination);
        tone.start(from); tone.stop(to);
        end = Math.max(end, to);
      }
      this.part("listen").textContent = "Silence";
      this.beat = setInterval(() => {
        const line = this.root.querySelector(".now"), step = Math.floor((sound.currentTime - begin) / sixteenth);
        if (sound.currentTime > end) return this.silence();
        Object.assign(line.style, {visibility: step < 0 ? "" : "visible", gridColumn: Math.max(step, 0) + 2});
      }, 50);
    }

    async save(format) {
      if (!this.done || this.abort) return say("draw first, then save it", true);
      const n = this.size, cut = moves => moves.filter(([i]) => i < n);
      const body = {
        model: this.model.number, format, title: `${this.model.name}, ${this.asked.sampler}`.slice(0, 200), facts: this.facts ?? [],
        steps: this.data.steps, t: this.data.t, calls: this.sample.calls, held: this.sample.given.slice(0, n),
        start: this.startTokens.slice(0, n), changes: this.moves.map(cut), entropy: this.sample.entropy.slice(0, n),
      };
      say(`making the .${format}`);
      try {
        const answer = await fetch("/api/export", {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
        if (!answer.ok) throw new Error((await answer.json()).error);
        const link = make("a", {href: URL.createObjectURL(await answer.blob()), download: `zellige.${format}`});
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
        say(`saved as zellige.${format}`);
      } catch (error) { say(error.message, true); }
    }
  }

  const progress = (step, steps) => { $("progress").max = Math.max(steps, 1); $("progress").value = step; say(`step ${step} of ${steps}`); };
  let panes = [];
  const busy = on => { $("stop").disabled = !on; for (const id of ["write", "clear", "beside"]) $(id).disabled = on; if (on) $("fill").disabled = true; else panesChanged(); };

  function panesChanged() {
    const running = panes.some(p => p.model.running), first = panes[0].model;
    $("typed").hidden = !running;
    const classes = [...new Set(panes.flatMap(p => p.model.classes))];
    $("classed").hidden = !classes.length;
    if ($("class").options.length !== classes.length + 1 || classes.some((c, i) => $("class").options[i + 1].value !== c))
      $("class").replaceChildren(make("option", {value: "", textContent: "none"}), ...classes.map(c => make("option", {value: c, textContent: c})));
    $("fill").disabled = !panes.some(p => p.away.size) || panes.some(p => p.abort);
    $("write").textContent = {grid: "Solve", image: "Draw", roll: "Compose"}[first.kind] ?? "Write";
    $("does").textContent = {grid: "clicks a cell away", image: "clicks pixels away (drag)", roll: "clicks a note away (drag)", smiles: "clicks an atom away"}[first.kind] ?? "clicks a word away";
    $("hint").textContent = {
      grid: "Point at a cell and type a digit to set it; Backspace clears it. Cells that you set stay.",
      image: "Drag over pixels to have them drawn again; locked pixels stay.",
      roll: "Click notes away to have them composed again; lock a voice to keep it.",
    }[first.kind] ?? "The text begins with yours; each _ in it is one missing token. Locked words stay when it is written again; words clicked away are filled in.";
  }

  const arrange = () => {
    while (panes.length > ($("beside").checked ? 2 : 1)) { panes.at(-1).silence(); panes.pop().root.remove(); }
    while (panes.length < ($("beside").checked ? 2 : 1)) { panes.push(new Pane(panes.length)); $("panes").append(panes.at(-1).root); }
    $("panes").classList.toggle("two", panes.length > 1);
    panesChanged();
  };

  const go = async fill => {
    const some = fill ? panes.filter(p => p.away.size) : panes;
    const wrong = [...document.querySelectorAll("#ask input, .options input")].find(i => !i.checkValidity());
    if (wrong) { wrong.closest("details")?.setAttribute("open", ""); say(`${wrong.name || wrong.labels[0].textContent.trim()}: ${wrong.validationMessage}`, true); wrong.focus(); return; }
    busy(true);
    say("waiting");
    const ends = await Promise.allSettled(some.map(p => p.draw(fill)));
    const failed = ends.find(e => e.status === "rejected");
    if (failed) say(failed.reason.name === "AbortError" ? "stopped" : failed.reason.message, failed.reason.name !== "AbortError");
    else say("done");
    busy(false);
  };

  $("write").onclick = () => go(false);
  $("fill").onclick = () => go(true);
  $("stop").onclick = () => { for (const p of panes) p.abort?.abort(); };
  $("beside").onchange = arrange;
  $("unlock").onclick = () => { for (const p of panes) { p.locked.clear(); p.player.grow(); } };
  $("clear").onclick = () => { for (const p of panes) p.clear(); say(""); panesChanged(); };
  $("words").onkeydown = e => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) go(false); };
  arrange();
})();
