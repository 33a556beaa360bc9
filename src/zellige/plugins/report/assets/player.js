// What a page of ours does: theme, copy, print, and the player, which draws one sample at one step. A report has one player;
// `zellige play` makes its own by `zelligePlayer`.
// The address may ask: #play  #step=22  #sample=2  #colour=entropy  #theme=dark, joined by &.
(() => {
  "use strict";
  const $ = id => document.getElementById(id);
  const all = (query, of = document) => [...of.querySelectorAll(query)];
  const ask = new URLSearchParams(location.hash.slice(1));

  // theme: "auto" leaves it to prefers-color-scheme
  const theme = name => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    for (const b of all(".theme button")) b.setAttribute("aria-pressed", b.dataset.theme === name);
  };
  const themes = ["light", "dark", "auto"];
  for (const place of all(".theme")) place.replaceChildren(...themes.map(name => {
    const button = Object.assign(document.createElement("button"), {textContent: name, onclick: () => theme(name)});
    button.dataset.theme = name;
    return button;
  }));
  theme(themes.find(name => name === ask.get("theme")) ?? "auto");

  // copy a sample; print with every folded part open
  for (const b of all("button.copy")) b.onclick = async () => {
    const source = b.parentElement.nextElementSibling;
    try { await navigator.clipboard.writeText(source.textContent); b.textContent = "copied"; }
    catch { getSelection().selectAllChildren(source); b.textContent = "selected"; }
  };
  let folded = [];
  addEventListener("beforeprint", () => { folded = all("details:not([open])"); for (const d of folded) d.open = true; });
  addEventListener("afterprint", () => { for (const d of folded) d.open = false; });

  // A player in `root`, of {steps, t, total, kind, samples}: a frame is an index into steps and t, and `data` may grow.
  // hooks: classes(i) adds to the class of position i; drawn(frame) is called after each drawing; pace() is the milliseconds a frame;
  // more() says whether frames are still to come.
  const makePlayer = (root, data, hooks = {}) => {
    const $ = name => root.querySelector(`#${name}, [data-part=${name}]`);
    let end = data.steps.length - 1;
    const player = root, button = $("play");
    const cell = data.kind?.cell ?? 1;
    const reduced = matchMedia("(prefers-reduced-motion: reduce)");
    const kind = data.kind;  // null: running text; else {name, across, cell, box, ...}: how the pieces lie
    const roll = kind?.pitches, pitches = Object.values(roll ?? {}), high = Math.max(...pitches), low = Math.min(...pitches);
    $("text").className = kind?.name ?? "text";
    if (kind) $("text").style.setProperty("--across", kind.across);
    if (roll) $("text").style.setProperty("--pitches", high - low + 1);
    let sample, spans, frame = end, colour = "new", timer = null;

    // what stands at each position at frame k: the piece (null: masked) and the frame since when it stands
    const shown = k => {
      if (!sample.changes) return sample.pieces.map((p, i) => {
        const since = sample.reveal[i] ?? Infinity;
        return {piece: since <= k ? p : null, since};
      });
      const now = sample.start.map(piece => ({piece, since: 0}));
      for (let j = 1; j <= k; j++) for (const [i, piece] of sample.changes[j]) now[i] = {piece, since: j};
      return now;
    };

    const draw = k => {
      frame = Math.min(end, Math.max(0, k));
      const now = shown(frame), entropy = sample.entropy, most = data.entropy || 1, finished = data.steps[frame] >= data.total;
      spans.forEach((span, at) => {
        const i = at * cell, cells = now.slice(i, i + cell);  // of a colour image three
        const masked = cells.every(p => p.piece === null), since = Math.max(...cells.map(p => p.piece === null ? 0 : p.since));
        const tint = !masked && !sample.given[i] && colour !== "new";
        span.className = masked ? "masked" : sample.given[i] ? "given" : tint ? "tint"
          : since === frame && frame > 0 && !finished ? "new" : "";
        if (hooks.classes) span.className += ` ${hooks.classes(i)}`;
        if (kind?.name === "image") {
          const bright = cells.map(p => p.piece ?? 128);
          span.style.background = masked || tint ? "" : `${bright[0]}`.startsWith("#") ? bright[0]
            : `rgb(${bright.length === 3 ? bright : [bright[0], bright[0], bright[0]]})`;
        } else span.textContent = masked ? sample.pieces[i] ?? "·" : cells[0].piece;  // a mask is as wide as what it becomes: nothing jumps
        if (tint) span.style.setProperty("--a", colour === "step" ? since / end
          : Math.max(...cells.map((_, j) => entropy?.[i + j] ?? 0)) / most);
      });
      if (roll) place(now);
      $("spoken").textContent = kind?.name === "image" ? "an image"
        : now.map((p, i) => p.piece ?? "·".repeat([...(sample.pieces[i] ?? "·")].length)).join(kind ? " " : "");
      const free = now.filter((_, i) => !sample.given[i]), done = free.filter(p => p.piece !== null).length;
      const step = data.steps[frame];
      $("scrub").value = frame;
      $("scrub").setAttribute("aria-valuetext", `step ${step} of ${data.total}`);
      $("where").textContent = `step ${step}/${data.total}   t ${data.t[frame].toFixed(2)}`;
      $("count").textContent = `${done} of ${free.length} revealed   ${sample.calls[frame]} network evaluations`;
      $("legend").textContent = colour === "new" ? finished ? "" : `${kind?.name === "image" || roll ? "framed" : "underlined"}: new in this step` : colour === "step"
        ? "pale: revealed early, strong: late" : `strong: the network was unsure (up to ${most.toFixed(1)} bits)`;
      hooks.drawn?.(frame);
    };

    // of a piano roll: a note in the line of its pitch, what does not sound or is still to come in the lane of its voice below
    const place = now => {
      const standing = new Set();
      spans.forEach((span, i) => {
        const pitch = now[i].piece === null ? undefined : roll[now[i].piece], voice = i % kind.across, at = `${(i - voice)} ${pitch}`;
        span.style.gridRow = pitch === undefined ? high - low + 4 + voice : high - pitch + 2;
        if (pitch !== undefined && standing.has(at)) span.className += " unison";  // two voices on one note: half the height for each
        if (pitch === undefined && now[i].piece !== null) span.className += " rest";
        standing.add(at);
      });
    };

    // its lines and names: bars above, every C and the voices at the left; `now` shows what is heard
    const rule = steps => {
      const mark = (className, row, column, text = "") => {
        const element = document.createElement("i");
        Object.assign(element, {className, textContent: text, ariaHidden: "true"});
        Object.assign(element.style, {gridRow: row, gridColumn: column});
        return element;
      };
      const marks = [mark("now", "2 / -1", "2")];
      for (let step = 0; step < steps; step += kind.bar) marks.push(mark("bar", "1 / -1", `${step + 2}`, `${step / kind.bar + 1}`));
      for (let pitch = low; pitch <= high; pitch++) if (pitch % 12 === 0)
        marks.push(mark("octave", high - pitch + 2, "1 / -1", `C${pitch / 12 - 1}`));
      kind.voices.forEach(([name, colour], v) => {
        const label = mark("voice", high - low + 4 + v, "1 / -1", name);
        label.style.setProperty("--voice", `var(--${colour})`);
        marks.push(label);
      });
      return marks;
    };

    const choose = n => {
      sample = data.samples[n];
      if ($("sample")) $("sample").value = n;
      spans = Array.from({length: sample.pieces.length / cell}, (_, at) => at * cell).map(i => {
        const span = document.createElement("span"), since = sample.reveal?.[i], bits = sample.entropy?.[i];
        if (kind?.box) {
          const [row, column] = [Math.floor(i / kind.across), i % kind.across];
          if (column && column % kind.box === 0) span.style.borderLeft = "2px solid var(--ink)";
          if (row && row % kind.box === 0) span.style.borderTop = "2px solid var(--ink)";
        }
        if (roll) {
          span.style.gridColumn = Math.floor(i / kind.across) + 2;
          span.style.setProperty("--voice", `var(--${kind.voices[i % kind.across][1]})`);
        }
        span.title = `position ${i + 1}` + (sample.given[i] ? ", given" : since == null ? "" : `, step ${data.steps[since]}`)
          + (bits == null ? "" : `, ${bits.toFixed(2)} bits`);
        return span;
      });
      const steps = sample.pieces.length / (kind?.across ?? 1);
      if (roll) $("text").style.setProperty("--steps", steps);
      $("text").replaceChildren(...roll ? rule(steps) : [], ...spans);
      draw(frame);
    };

    const stop = () => { clearTimeout(timer); timer = null; button.textContent = "Play"; };
    const pace = () => reduced.matches ? 1000 : (hooks.pace?.() ?? 100) / Number($("speed").value);
    const tick = () => {
      if (frame < end) draw(frame + 1);
      else if (!hooks.more?.()) return stop();
      timer = setTimeout(tick, pace());
    };
    const play = () => {
      if (timer !== null) return stop();
      if (frame >= end) draw(0);
      button.textContent = "Pause";
      timer = setTimeout(tick, pace());
    };
    const go = k => { stop(); draw(k); };

    button.onclick = play;
    $("first").onclick = () => go(0);
    $("back").onclick = () => go(frame - 1);
    $("on").onclick = () => go(frame + 1);
    $("last").onclick = () => go(end);
    $("scrub").oninput = e => go(Number(e.target.value));
    if ($("sample")) $("sample").onchange = e => choose(Number(e.target.value));
    for (const r of all("[name^=colour]", player)) r.onchange = () => { colour = r.value; draw(frame); };
    player.onkeydown = e => {
      const own = e.target.matches("select, [type=radio]"), by = e.shiftKey ? 10 : 1;
      const keys = {ArrowLeft: () => go(frame - by), ArrowRight: () => go(frame + by), Home: () => go(0), End: () => go(end)};
      if (e.key === " " && !own && e.target.tagName !== "BUTTON") keys[" "] = play;  // a button presses itself
      if (own || e.ctrlKey || e.metaKey || e.altKey || !keys[e.key]) return;
      e.preventDefault();
      keys[e.key]();
    };

    // the data has grown: shows its last frame, or goes on from the frame that is shown
    const grow = (last = true) => { end = data.steps.length - 1; $("scrub").max = end; draw(last ? end : frame); };
    const colourBy = name => { colour = name; };
    return {choose, draw, go, grow, play, stop, player, colourBy, get frame() { return frame; }};
  };
  globalThis.zelligePlayer = makePlayer;

  if (!$("watched")) return;
  const data = JSON.parse($("watched").textContent);
  const {choose, draw, play, player, colourBy} = makePlayer($("player"), data);
  const wanted = all("[name^=colour]", player).find(r => r.value === ask.get("colour"));
  if (wanted) { wanted.checked = true; colourBy(wanted.value); }
  choose(Math.min(data.samples.length, Math.max(1, Number(ask.get("sample")) || 1)) - 1);
  if (ask.has("step")) draw(Number(ask.get("step")));
  if (ask.has("play")) play();
})();
