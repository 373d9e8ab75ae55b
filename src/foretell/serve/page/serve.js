// The page: texts are the truth (model, cluster, plan), sliders edit them, and every change is asked at once.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const USUAL = { model: "llama3-8b", cluster: "64xh100", batch: 64, seq: 0, plan: "dp8:zero1 tp8:sp +m8 +bf16",
    trainer: "", optimizer: "", hardware: {}, tokens: 0, price: 0 };
  const AXES = ["pp", "dp", "cp", "spatial", "filter", "channel", "tp"]; // from the outermost to the innermost
  const SLIDERS = ["pp", "dp", "ep", "cp", "tp", "spatial", "filter"];
  const LONGEST_SHARED = 6000; // characters of a config.json that goes into the address
  let choices = null;
  let asked = { ...USUAL };
  let pinned = null; // the first of two that are compared
  let pasted = ""; // the config.json that `asked.model` was handed in as
  let measured = null; // what was handed in that was measured: its name, its kind, what it says
  let before = null; // the answer before this one

  // --- asking -------------------------------------------------------------------------------------

  class Wrong extends Error {
    constructor(problem) { super(problem.what); this.problem = problem; }
  }

  async function call(path, body, method = "POST", kind = "application/json") {
    const options = { method, headers: body === undefined ? {} : { "content-type": kind } };
    if (body !== undefined) options.body = kind === "application/json" && typeof body !== "string" ? JSON.stringify(body) : body;
    let answer;
    try {
      answer = await fetch(path, options);
    } catch {
      throw new Wrong({ what: "The server does not answer.", fix: "start it again: foretell serve" });
    }
    if (answer.ok) return answer;
    throw new Wrong(await answer.json().catch(() => ({ what: `The server answers ${answer.status}.` })));
  }

  // One request at a time; of the changes made meanwhile only the last one counts.
  function latest(work) {
    let busy = false, again = false;
    return async function run() {
      if (busy) { again = true; return; }
      busy = true;
      $("answers").setAttribute("aria-busy", "true");
      try {
        do { again = false; await work(() => again); } while (again);
      } finally {
        busy = false;
        $("answers").setAttribute("aria-busy", "false");
      }
    };
  }

  // --- texts --------------------------------------------------------------------------------------

  const words = () => asked.plan.trim().split(/\s+/).filter(Boolean);
  const axisOf = (word) => /^([a-z]+)([0-9]+(?:x[0-9]+)*)(\[[^\]]*\])?(?::(.*))?$/.exec(word);

  function axis(name) {
    for (const word of words()) {
      const found = axisOf(word);
      if (found && found[1] === name) return { word, ranks: found[2].split("x").reduce((a, b) => a * +b, 1),
        options: found[4] ? found[4].split(",") : [] };
    }
    return { word: "", ranks: 1, options: [] };
  }

  function setAxis(name, ranks, options) {
    const old = axis(name), rest = words();
    const said = (options || (old.word ? old.options : name === "pp" ? ["1f1b"] : [])).filter(Boolean);
    const word = ranks > 1 ? name + ranks + (said.length ? ":" + said.join(",") : "") : "";
    const at = rest.indexOf(old.word);
    if (old.word && word) rest[at] = word;
    else if (old.word) rest.splice(at, 1);
    else if (word) {
      const after = rest.findIndex((one) => one.startsWith("+") || AXES.indexOf((axisOf(one) || [])[1]) > AXES.indexOf(name));
      rest.splice(after < 0 ? rest.length : after, 0, word);
    }
    asked.plan = rest.join(" ");
  }

  function policy(pattern) { return words().find((word) => word.startsWith("+") && pattern.test(word.slice(1))) || ""; }

  function setPolicy(pattern, word) {
    const old = policy(pattern), rest = words(), at = old ? rest.indexOf(old) : rest.length;
    rest.splice(at, old ? 1 : 0, ...(word ? ["+" + word] : []));
    asked.plan = rest.join(" ");
  }

  const MICRO = /^m[0-9]+$/, RECOMPUTE = /^recompute:/, LORA = /^lora[0-9]+$/, EXPERTS = /^ep[0-9]+$/;
  const LORA_RANKS = [4, 8, 16, 32, 64, 128];
  const experts = () => +(axis("dp").options.find((one) => EXPERTS.test(one)) || "ep1").slice(2);

  // Amounts as people write them: 15T, 300 B, 1e12.
  const UNITS = { k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 };
  function amount(text) {
    const found = /^([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([kmbgt]?)(?:\s*(?:tokens|samples))?$/i.exec(text.trim());
    return found ? +found[1].replace(/[_,]/g, "") * (UNITS[found[2].toLowerCase()] || 1) : text.trim() ? NaN : 0;
  }
  function shortAmount(value) {
    const unit = ["t", "b", "m", "k"].find((one) => value >= UNITS[one]);
    return !value ? "" : unit ? `${+(value / UNITS[unit]).toPrecision(6)}${unit.toUpperCase()}` : String(value);
  }
  const precisionPattern = () => new RegExp("^(" + choices.precisions.join("|") + ")$");

  function place() {
    const found = /^(?:([0-9]+)x)?(?:([0-9]+)x)?([^,:]+?)(?::([0-9]+))?((?:,[^,]*)*)$/i.exec(asked.cluster.trim());
    if (!found) return null;
    const known = choices.places.find((one) => one.name === found[3].toLowerCase());
    const kind = known ? known.kind : "device", each = known && kind !== "device" ? known.ranks : 1;
    const count = (+found[1] || 1) * (+found[2] || 1);
    const gpus = kind === "site" ? +found[4] || each : kind === "machine" ? count * each : count;
    return { name: found[3], kind, each, gpus, links: found[5] || "", node: +found[2] || 0 };
  }

  function setPlace(gpus, links) {
    const old = place();
    if (!old) return;
    const more = links === undefined ? old.links : links;
    const nodes = Math.max(1, Math.round(gpus / old.each));
    asked.cluster = old.kind === "site" ? `${old.name}:${gpus}`
      : old.kind === "machine" ? (nodes > 1 ? `${nodes}x` : "") + old.name + more
      : old.node > 1 && gpus % old.node === 0 && gpus > old.node ? `${gpus / old.node}x${old.node}x${old.name}${more}`
      : (gpus > 1 ? `${gpus}x` : "") + old.name + more;
    if ($("follow").checked) follow();
  }

  function follow() { // data takes what the other axes leave
    const here = place();
    if (!here) return;
    const others = words().map(axisOf).filter((one) => one && one[1] !== "dp")
      .reduce((all, one) => all * one[2].split("x").reduce((a, b) => a * +b, 1), 1);
    const ranks = Math.max(1, Math.floor(here.gpus / others));
    setAxis("dp", ranks);
    let count = +policy(MICRO).slice(2) || 1; // and micro-batches become fewer, where the batch has no samples for so many
    while (count > 1 && asked.batch % (ranks * count)) count = Math.floor(count / 2);
    if (policy(MICRO)) setPolicy(MICRO, count > 1 ? `m${count}` : "");
  }

  // --- what is seen -------------------------------------------------------------------------------

  function slide(id, value, text) {
    const input = $(id);
    input.value = Math.round(Math.log2(value));
    const said = text || String(value);
    $(id + "-value").textContent = said;
    input.setAttribute("aria-valuetext", said);
  }

  function showControls() {
    showTrainers();
    if (document.activeElement !== $("tokens")) $("tokens").value = shortAmount(asked.tokens);
    if (document.activeElement !== $("price")) $("price").value = asked.price || "";
    for (const id of ["model", "cluster", "plan", "batch", "seq", "trainer", "optimizer"]) {
      if (document.activeElement !== $(id) || $(id).tagName === "SELECT") $(id).value = asked[id];
    }
    const here = place();
    $("gpus").disabled = !here;
    if (here) {
      slide("gpus", here.gpus);
      const link = here.links.slice(1).replace(/^[0-9]+x/, "");
      $("network").value = choices.networks.includes(link) ? link : "";
      $("network").disabled = here.kind === "site";
    }
    for (const name of SLIDERS) slide(name, name === "ep" ? experts() : axis(name).ranks);
    $("ep").disabled = axis("dp").ranks < 2;
    $("dp").disabled = $("follow").checked;
    slide("m", +policy(MICRO).slice(2) || 1);
    const stored = axis("dp").options.find((one) => choices.storages.includes(one));
    $("storage").value = stored || "replicated";
    $("storage").disabled = axis("dp").ranks < 2;
    $("schedule").value = axis("pp").options.find((one) => choices.schedules.includes(one)) || "1f1b";
    $("schedule").disabled = axis("pp").ranks < 2;
    $("sp").checked = axis("tp").options.includes("sp");
    $("sp").disabled = axis("tp").ranks < 2;
    $("recompute").value = policy(RECOMPUTE).slice("+recompute:".length) || "none";
    $("precision").value = policy(precisionPattern()).slice(1);
    const adapter = policy(LORA).slice("+lora".length);
    if (adapter && !LORA_RANKS.includes(+adapter) && $("lora").options.length === LORA_RANKS.length + 1) $("lora").append(new Option(adapter, adapter));
    $("lora").value = adapter;
    for (const input of $("hardware").querySelectorAll("input")) {
      const times = asked.hardware[input.dataset.part] || 1;
      slide(input.id, times, `${+times.toPrecision(3)}x`);
      input.value = Math.log2(times);
    }
  }

  // Today's trainers; those of other years when they are wished for, or one of them is asked about.
  function showTrainers() {
    if (asked.trainer in choices.historical) $("past").checked = true;
    const shown = choices.trainers.filter((name) => $("past").checked || !(name in choices.historical));
    if ($("trainer").options.length === shown.length) return;
    $("trainer").replaceChildren();
    const today = document.createElement("optgroup"), past = document.createElement("optgroup");
    today.label = "Today's";
    past.label = "Of other years";
    for (const name of shown) {
      const year = choices.historical[name], text = year && !name.includes(year) ? `${name} (${year})` : name;
      (year ? past : today).append(new Option(text, name === "pytorch" ? "" : name));
    }
    $("trainer").append(today, ...(past.children.length ? [past] : []));
  }

  function showHardware(parts) {
    const known = Array.from($("hardware").querySelectorAll("input"), (input) => input.dataset.part);
    if (known.join() === parts.join()) return;
    $("hardware").replaceChildren();
    parts.forEach((part, at) => {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { id: `hardware-${at}`, type: "range", min: -3, max: 3, step: 0.5, value: 0 });
      input.dataset.part = part;
      label.htmlFor = input.id;
      label.textContent = part[0].toUpperCase() + part.slice(1);
      $("hardware").append(label, input);
      withValue(input);
      input.addEventListener("input", () => {
        const times = 2 ** +input.value;
        if (times === 1) delete asked.hardware[part]; else asked.hardware[part] = times;
        changed();
      });
    });
    for (const part of Object.keys(asked.hardware)) if (!parts.includes(part)) delete asked.hardware[part];
  }

  function withValue(input) { // a slider with its value beside it
    const box = document.createElement("span"), output = document.createElement("output");
    box.className = "slider";
    box.hidden = input.hidden;
    output.id = input.id + "-value";
    output.htmlFor = input.id;
    output.setAttribute("aria-hidden", "true"); // the slider says it itself
    input.replaceWith(box);
    box.append(input, output);
  }

  // Messages name the fields of a question; here they have labels.
  const LABELS = { model: "Model", cluster: "Cluster", batch: "Batch", seq: "Sequence", plan: "Plan", trainer: "Trainer",
    optimizer: "Optimizer", precision: "Precision", hardware: "Hardware", tokens: "To train", price: "Price" };

  function showProblem(problem) {
    const box = $("problem");
    box.hidden = !problem;
    box.replaceChildren();
    for (const id of Object.keys(LABELS)) if ($(id)) $(id).removeAttribute("aria-invalid");
    if (!problem) return;
    const line = (text, kind) => { const p = document.createElement("p"); p.textContent = text; p.className = kind || ""; box.append(p); };
    const refusals = problem.refusals || [], ways = [problem.fix || "", ...refusals.map((one) => one.way_out || "")].join("; ");
    const what = problem.what.split("\n")[0];
    line(refusals.length ? what : sentence(what), "what"); // a plan begins with its own letters
    for (const one of refusals) line(`${sentence(one.rule)}: ${one.why}.`, "rule");
    if (!refusals.length) {
      if (problem.where && !LABELS[problem.where]) line(`Where: ${problem.where}`, "rule");
      if (problem.fix) line(`Try: ${problem.fix}`, "rule");
    }
    if ($(problem.where)) $(problem.where).setAttribute("aria-invalid", "true");
    const row = document.createElement("div");
    row.className = "actions";
    for (const plan of problem.plans || []) row.append(useButton(plan, `Use ${plan}`));
    for (const [text, field, value] of new Map(Array.from(ways.matchAll(/\b(batch|seq) ([0-9]+)/g), (one) => [one[0], one])).values()) {
      row.append(button(`${LABELS[field]} ${value}`, () => { asked[field] = +value; changed(); $("answers").focus(); }));
    }
    if (row.children.length) box.append(row);
  }

  const sentence = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

  function button(text, work) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", work);
    return made;
  }

  function useButton(plan, text) {
    const made = button(text, () => { use(plan); $("answers").focus(); });
    made.setAttribute("aria-label", `Use ${plan}`);
    return made;
  }

  function use(plan) { asked.plan = plan; $("follow").checked = false; changed(); }

  // What a model has no use for is not offered, unless the plan has it.
  function showAxes(axes) {
    for (const name of SLIDERS) {
      const shown = axes.includes(name) || (name === "ep" ? experts() : axis(name).ranks) > 1, input = $(name);
      input.hidden = !shown;
      input.closest(".slider").hidden = !shown;
      document.querySelector(`label[for=${name}]`).hidden = !shown;
    }
  }

  // What a change did: of the step and of memory, against the answer before.
  function showChange(now) {
    const told = [];
    const change = (name, old, later) => {
      const times = later / old, share = Math.abs(100 * (times - 1));
      if (share < 0.05) return;
      const by = times >= 2 ? `${+times.toPrecision(2)} times as much` : `${share >= 10 ? Math.round(share) : +share.toPrecision(1)} % ${times > 1 ? "more" : "less"}`;
      told.push(`${name} ${by}`);
    };
    if (before && before.model === now.model) {
      change("time of a sample", 1 / before.samples_per_second, 1 / now.samples_per_second);
      change("memory", before.memory_bytes, now.memory_bytes);
    }
    $("since").textContent = told.length ? `With the last change: ${told.join(", ")}.` : "";
    before = now;
  }

  function showGlance(now) {
    $("glance").hidden = false;
    $("glance-step").textContent = `${seconds(now.step_seconds)} a step`;
    $("glance-memory").textContent = now.fits ? `${bytes(now.memory_bytes)}, fits` : `${bytes(now.memory_bytes)}, does not fit`;
    $("glance").classList.toggle("over", !now.fits);
  }

  function put(box, html) { // figures of the server, whose texts it has escaped
    const open = new Set(Array.from(box.querySelectorAll("figure details[open]"), (one) => one.closest("figure").querySelector("svg").getAttribute("aria-label").split(".")[0]));
    box.innerHTML = html;
    for (const one of box.querySelectorAll("figure details")) {
      if (open.has(one.closest("figure").querySelector("svg").getAttribute("aria-label").split(".")[0])) one.open = true;
    }
    window.foretellPrepare(box);
  }

  // --- the address --------------------------------------------------------------------------------

  function remember() {
    const state = new URLSearchParams();
    for (const name of ["model", "cluster", "batch", "plan"]) state.set(name, asked[name]);
    for (const name of ["seq", "trainer", "optimizer", "tokens", "price"]) if (asked[name]) state.set(name, asked[name]);
    for (const [part, times] of Object.entries(asked.hardware)) state.set(`x ${part}`, times);
    if (pasted && pasted.length <= LONGEST_SHARED) state.set("config", pasted);
    if (pinned) state.set("with", JSON.stringify(pinned));
    if (measured) state.set("measured", measured.name);
    history.replaceState(null, "", location.pathname + "#" + state);
  }

  async function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    asked = { ...USUAL, hardware: {} };
    pasted = state.get("config") || "";
    for (const name of ["model", "cluster", "plan", "trainer", "optimizer"]) if (state.has(name)) asked[name] = state.get(name);
    for (const name of ["batch", "seq"]) if (state.has(name)) asked[name] = Math.trunc(+state.get(name)) || 0;
    for (const name of ["tokens", "price"]) if (state.has(name)) asked[name] = +state.get(name) || 0;
    for (const [name, times] of state) if (name.startsWith("x ") && +times > 0) asked.hardware[name.slice(2)] = +times;
    try { pinned = state.has("with") ? JSON.parse(state.get("with")) : null; } catch { pinned = null; }
    const own = axis("dp").ranks * words().map(axisOf).filter((one) => one && one[1] !== "dp")
      .reduce((all, one) => all * one[2].split("x").reduce((a, b) => a * +b, 1), 1);
    const here = place();
    $("follow").checked = Boolean(here) && own === here.gpus;
    measured = state.has("measured") ? await known(state.get("measured")) : null;
    showMeasured();
    if (pasted) await handIn(pasted, false).catch((wrong) => showProblem(wrong.problem));
  }

  async function known(name) { // what this server still has of what was measured
    try { return (await (await call("/api/model", { model: name })).json()).measured || null; } catch { return null; }
  }

  // --- answers ------------------------------------------------------------------------------------

  const question = () => ({ model: asked.model, cluster: asked.cluster, batch: asked.batch, seq: asked.seq, plan: asked.plan,
    trainer: asked.trainer, optimizer: asked.optimizer, hardware: { ...asked.hardware }, tokens: asked.tokens, price: asked.price });

  const refresh = latest(async (stale) => {
    const began = performance.now();
    try {
      const now = question();
      const view = await (await call("/api/view", now)).json();
      showProblem(null);
      showHardware(view.knobs);
      showAxes(view.axes);
      $("said").textContent = view.said;
      showChange(view.prediction);
      showGlance(view.prediction);
      put($("result"), view.html);
      $("result").classList.remove("old");
      if (pinned && !stale()) await compare(now);
      if (measured && measured.kind === "run" && !stale()) await laidBeside(now);
    } catch (wrong) {
      if (!(wrong instanceof Wrong)) throw wrong;
      showProblem(wrong.problem);
      $("said").textContent = "This question has no answer; what is below is the last one that had.";
      $("since").textContent = "";
      $("glance-step").textContent = "No answer";
      $("glance-memory").textContent = "";
      $("result").classList.add("old");
    }
    showControls();
    document.body.dataset.seen = String(Math.round(performance.now() - began)); // for those who measure the page
    document.body.dataset.changes = String(1 + +(document.body.dataset.changes || 0));
  });

  async function compare(now) {
    const both = await (await call("/api/compare", { first: pinned, second: now })).json();
    $("comparison").hidden = false;
    put($("compared"), both.html);
  }

  async function laidBeside(now) {
    const found = await (await call("/api/measured", { ...now, measured: measured.name })).json();
    put($("evidence-shown"), found.html);
  }

  function changed() { showControls(); remember(); refresh(); }

  function showPinned() {
    $("pin").setAttribute("aria-pressed", String(Boolean(pinned)));
    $("pin").textContent = pinned ? "Stop comparing" : "Compare from here";
    if (!pinned) { $("comparison").hidden = true; $("compared").replaceChildren(); }
  }

  function showMeasured() {
    $("evidence").hidden = !measured;
    $("trace").textContent = measured ? "Download trace, with the measured one" : "Download trace";
    $("evidence-shown").replaceChildren();
    const more = measured && measured.kind === "trace" ? " It lies under the predicted one in the trace that you download." : "";
    $("evidence-said").textContent = measured ? measured.said + more : "";
  }

  // --- a model of one's own -----------------------------------------------------------------------

  async function handIn(content, ask = true) {
    const found = await (await call("/api/models", content, "POST", "application/octet-stream")).json();
    if (found.measured) {
      measured = found.measured;
      showMeasured();
    }
    if (found.question) {
      asked = { ...USUAL, ...found.question, hardware: found.question.hardware || {} };
      $("follow").checked = false;
      pasted = "";
    } else if (found.measured) {
      $("about-model").textContent = found.notes.map(sentence).join("; ");
    } else {
      asked.model = found.model;
      $("about-model").textContent = `${found.name}: ${found.parameters.toLocaleString("en")} parameters`
        + (found.layers ? `, ${found.layers} layers` : "") + (found.notes.length ? ". " + found.notes.join("; ") : "");
    }
    if (ask) changed();
  }

  async function handInText(text) {
    let short = text;
    try { short = JSON.stringify(JSON.parse(text)); } catch { /* the server says what is wrong */ }
    pasted = "";
    await handIn(short, false);
    pasted = asked.model.startsWith("uploaded:") && short.length <= LONGEST_SHARED ? short : "";
    changed();
  }

  async function handInFile(file) {
    const work = file.size <= LONGEST_SHARED ? handInText(await file.text()) : (pasted = "", handIn(file));
    work.catch((wrong) => showProblem(wrong.problem));
  }

  // --- searching ----------------------------------------------------------------------------------

  let watching = "";

  async function search() {
    const { plan, ...about } = question();
    const precision = policy(precisionPattern()).slice(1);
    $("searching").hidden = false;
    $("search-found").replaceChildren();
    $("search").disabled = true;
    $("close").hidden = true;
    $("stop").hidden = false;
    try {
      let told = await (await call("/api/searches", { ...about, precision })).json();
      watching = told.id;
      $("stop").disabled = false;
      while (told.state === "waiting" || told.state === "running") {
        if (told.plans) $("search-share").value = told.share; else $("search-share").removeAttribute("value");
        $("search-said").textContent = told.state === "waiting" ? "Waiting for its turn…"
          : told.doing ? `${sentence(told.doing)}: ${told.plans.toLocaleString("en")} plans so far, ${Math.round(told.seconds)} s`
          : `Starting, ${Math.round(told.seconds)} s`;
        await new Promise((done) => setTimeout(done, 300));
        told = await (await call(`/api/searches/${watching}`, undefined, "GET")).json();
      }
      if (told.problem) throw new Wrong(told.problem);
      showFound(told);
    } catch (wrong) {
      if (!(wrong instanceof Wrong)) throw wrong;
      $("search-said").textContent = wrong.problem.what + (wrong.problem.fix ? ` Try: ${wrong.problem.fix}` : "");
    } finally {
      watching = "";
      $("search").disabled = false;
      $("stop").hidden = true;
      $("close").hidden = false;
    }
  }

  function showFound(told) {
    const found = told.answer.found;
    $("search-share").value = 1;
    const until = told.stopped || !found.complete ? "stopped early; " : "";
    $("search-said").textContent = found.best
      ? `${until}${found.evaluated.toLocaleString("en")} plans were priced; the best takes ${seconds(found.best.step_seconds)} a step.`
      : `${until}no plan fits: the smallest needs ${found.nearest ? bytes(found.nearest.memory_bytes) : "more than there is"}.`;
    put($("search-found"), told.answer.html);
    if (!found.top.length) return;
    const table = document.createElement("table");
    table.innerHTML = '<thead><tr><th scope="col">the best plans</th><th scope="col">step</th><th scope="col">memory</th><th scope="col">try it</th></tr></thead><tbody></tbody>';
    for (const one of found.best && found.best.plan !== found.top[0].plan ? [found.best, ...found.top] : found.top) {
      const row = table.tBodies[0].insertRow();
      for (const text of [one.plan, seconds(one.step_seconds), bytes(one.memory_bytes)]) row.insertCell().textContent = text;
      const beside = button("Compare", () => { pinned = question(); showPinned(); use(one.plan); $("comparison").scrollIntoView(); });
      beside.setAttribute("aria-label", `Compare with ${one.plan}`);
      row.insertCell().append(useButton(one.plan, "Use"), " ", beside);
    }
    const box = document.createElement("div");
    box.className = "scroll";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "The best plans");
    box.append(table);
    $("search-found").append(box);
  }

  const seconds = (value) => value >= 1 ? `${value.toPrecision(3)} s` : value >= 1e-3 ? `${(1e3 * value).toPrecision(3)} ms` : `${(1e6 * value).toPrecision(3)} µs`;
  const bytes = (value) => `${(value / 2 ** 30).toPrecision(3)} GiB`;

  // --- fine-tuning --------------------------------------------------------------------------------

  async function tune() {
    const { plan, ...about } = question();
    $("tuning").hidden = false;
    $("tuning-found").replaceChildren();
    $("tuning-said").textContent = "Predicting each way…";
    $("tune").disabled = true;
    try {
      const found = await (await call("/api/tuning", about)).json();
      $("tuning-said").textContent = "";
      put($("tuning-found"), found.html);
      [...$("tuning-found").querySelectorAll("tbody tr")].forEach((row, at) => {
        const rung = found.found.rungs[at];
        if (!rung.fits) return;
        const { optimizer, seq, batch } = rung;
        const use = button("Use", () => { Object.assign(asked, { plan: rung.plan, optimizer, seq, batch }); $("follow").checked = false; changed(); });
        use.setAttribute("aria-label", `Use ${rung.what}`);
        row.firstElementChild.append(" ", use);
      });
    } catch (wrong) {
      if (!(wrong instanceof Wrong)) throw wrong;
      $("tuning-said").textContent = wrong.problem.what + (wrong.problem.fix ? ` Try: ${wrong.problem.fix}` : "");
    } finally {
      $("tune").disabled = false;
    }
  }

  // --- files --------------------------------------------------------------------------------------

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function download(kind) {
    try {
      if (kind === "report") return save(await (await call("/api/report", question())).blob(), "report.html");
      if (kind === "trace") return save(await (await call("/api/trace", { ...question(), beside: pinned, measured: measured ? measured.name : "" })).blob(), "trace.json");
      const written = await (await call("/api/export", { ...question(), to: $("dialect").value })).json();
      save(new Blob([written.text], { type: "text/plain" }), written.file.split("/").pop());
      const unsaid = written.unsaid.map((one) => `${one.figure} ${JSON.stringify(one.value)} is not said in this file: ${one.where}`);
      $("unsaid").textContent = [`${written.file}, for ${written.trainer}.`, ...unsaid].join(" ");
      $("start").hidden = !written.launch;
      $("launch").textContent = written.launch;
    } catch (wrong) {
      if (!(wrong instanceof Wrong)) throw wrong;
      showProblem(wrong.problem);
    }
  }

  // --- the beginning ------------------------------------------------------------------------------

  function fill(id, names) {
    for (const name of names) $(id).append(new Option(name, name));
  }

  function listen() {
    const on = (id, kind, work) => $(id).addEventListener(kind, work);
    const power = (id) => 2 ** +$(id).value;
    for (const id of ["model", "cluster"]) on(id, "change", () => { asked[id] = $(id).value.trim(); if (id === "model") { pasted = ""; $("about-model").textContent = ""; } else if ($("follow").checked) follow(); changed(); });
    on("plan", "change", () => { asked.plan = $("plan").value.trim(); $("follow").checked = false; changed(); });
    for (const id of ["batch", "seq"]) on(id, "input", () => { asked[id] = Math.trunc(+$(id).value) || 0; changed(); });
    for (const id of ["trainer", "optimizer"]) on(id, "change", () => { asked[id] = $(id).value; changed(); });
    on("gpus", "input", () => { setPlace(power("gpus")); changed(); });
    on("network", "change", () => { setPlace(place().gpus, $("network").value ? "," + $("network").value : ""); changed(); });
    for (const name of SLIDERS) on(name, "input", () => {
      if (name === "ep") setAxis("dp", axis("dp").ranks, [...axis("dp").options.filter((one) => !EXPERTS.test(one)), power(name) > 1 ? `ep${power(name)}` : ""]);
      else setAxis(name, power(name));
      if (name !== "dp" && $("follow").checked) follow();
      changed();
    });
    on("tokens", "change", () => {
      const value = amount($("tokens").value);
      if (!(value >= 0)) return showProblem({ what: `"${$("tokens").value}" is no number of tokens`, where: "tokens", fix: "15T, 300B, 1e12" });
      asked.tokens = value;
      changed();
    });
    on("price", "input", () => { asked.price = Math.max(0, +$("price").value || 0); changed(); });
    on("past", "change", () => { if (!$("past").checked && asked.trainer in choices.historical) { asked.trainer = ""; changed(); } else showControls(); });
    on("lora", "change", () => { setPolicy(LORA, $("lora").value ? `lora${$("lora").value}` : ""); changed(); });
    on("follow", "change", () => { if ($("follow").checked) follow(); changed(); });
    on("m", "input", () => { setPolicy(MICRO, power("m") > 1 ? `m${power("m")}` : ""); changed(); });
    on("storage", "change", () => {
      const rest = axis("dp").options.filter((one) => !choices.storages.includes(one) && !one.startsWith("shard"));
      setAxis("dp", axis("dp").ranks, [$("storage").value === "replicated" ? "" : $("storage").value, ...rest]);
      changed();
    });
    on("schedule", "change", () => { setAxis("pp", axis("pp").ranks, [$("schedule").value, $("schedule").value === "interleaved" ? "v2" : ""]); changed(); });
    on("sp", "change", () => { setAxis("tp", axis("tp").ranks, $("sp").checked ? ["sp"] : []); changed(); });
    on("recompute", "change", () => { setPolicy(RECOMPUTE, $("recompute").value === "none" ? "" : `recompute:${$("recompute").value}`); changed(); });
    on("precision", "change", () => { setPolicy(precisionPattern(), $("precision").value); changed(); });
    on("controls", "submit", (event) => event.preventDefault());
    on("paste", "click", () => handInText($("config").value).catch((wrong) => showProblem(wrong.problem)));
    on("file", "change", async () => {
      const file = $("file").files[0];
      if (!file) return;
      handInFile(file);
    });
    document.addEventListener("dragover", (event) => { event.preventDefault(); });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length) handInFile(event.dataTransfer.files[0]);
    });
    on("search", "click", search);
    on("tune", "click", tune);
    on("tuning-close", "click", () => { $("tuning").hidden = true; $("tune").focus(); });
    on("stop", "click", () => { if (watching) call(`/api/searches/${watching}`, undefined, "DELETE"); $("stop").disabled = true; });
    on("close", "click", () => { $("searching").hidden = true; $("search").focus(); });
    on("pin", "click", () => { pinned = pinned ? null : question(); showPinned(); changed(); });
    on("swap", "click", () => { const other = pinned; pinned = question(); asked = { ...USUAL, ...other, hardware: { ...other.hardware } }; $("follow").checked = false; changed(); });
    on("back", "click", () => { asked = { ...USUAL, ...pinned, hardware: { ...pinned.hardware } }; pinned = null; $("follow").checked = false; showPinned(); changed(); $("pin").focus(); });
    on("forget", "click", () => { measured = null; showMeasured(); changed(); $("answers").focus(); });
    for (const kind of ["report", "trace", "export"]) on(kind, "click", () => download(kind));
    on("link", "click", async () => {
      try { await navigator.clipboard.writeText(location.href); $("link").textContent = "Copied"; } catch { $("link").textContent = "It is in the address bar"; }
      setTimeout(() => { $("link").textContent = "Copy link"; }, 2000);
    });
    addEventListener("hashchange", async () => { await recall(); showPinned(); changed(); });
  }

  async function begin() {
    history.replaceState(null, "", location.pathname + location.hash); // the token came with the address, and is a cookie now
    choices = await (await call("/api/choices", undefined, "GET")).json();
    fill("models", choices.models);
    for (const one of choices.places) $("places").append(new Option(one.title, one.kind === "device" ? `8x${one.name}` : one.name));
    fill("network", choices.networks);
    $("lora").append(new Option("none: all weights", ""));
    fill("lora", LORA_RANKS);
    fill("optimizer", choices.optimizers);
    fill("storage", choices.storages);
    fill("schedule", choices.schedules);
    fill("recompute", choices.recomputes);
    $("precision").append(new Option("the trainer's", ""));
    fill("precision", choices.precisions);
    fill("dialect", choices.dialects);
    for (const input of document.querySelectorAll("#controls input[type=range]")) withValue(input);
    listen();
    await recall();
    showPinned();
    showControls();
    await refresh();
  }

  begin().catch((wrong) => showProblem(wrong.problem || { what: String(wrong) }));
})();
