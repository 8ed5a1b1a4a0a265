// The planner page. It asks only the JSON API of its own server, and every text becomes a text node, never markup.

const byId = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null && child !== ""));
  return node;
};
const button = (text, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, text);

// As `shown` of the reports: control characters become visible, and a text has an end.
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\p{Cs}\ufffe\uffff]/gu;
const readable = (text, limit = 2000) => {
  const whole = String(text ?? "");
  const note = ` … (${whole.length.toLocaleString("en")} characters, shortened)`;
  return (whole.length <= limit ? whole : whole.slice(0, limit) + note).replace(CONTROL, (sign) => {
    const code = sign.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code < 0x2000 || code > 0x206f ? "\ufffd" : "";
  });
};
// A text of a person, a model or a narration, in its own direction.
const words = (text, limit) => make("bdi", { dir: "auto" }, readable(text, limit));
const quoted = (text) => make("q", {}, words(text, 500));
const aboutThis = (count, all) => (all === 1 ? "the only video about this" : `${count.toLocaleString("en")} of the ${all.toLocaleString("en")} videos about this`);
const few = (count, name) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
const plain = (number) => number.toFixed(3).replace(/^-0\.000$/, "0.000").replace("-", "−");
const effect = (added) =>
  Math.abs(added) < 0.0005 ? "the reward is the same without it" : `adds ${added < 0 ? "−" : "+"}${Math.abs(added).toFixed(3)} to the reward`;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const sleep = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));
const isText = (node) => node.matches?.("textarea, select, input:not([type=radio], [type=checkbox], [type=range])");
// Not crypto.randomUUID, which a page of another machine without TLS does not have.
const freshKey = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
};

let info = null;
let limits = { plans: 8, default_plans: 4, history: 100, characters: 500, clip_bytes: Infinity, clip_seconds: Infinity };

// ---- The server ----

class Refusal extends Error {
  constructor(status, text) {
    let error = {};
    try {
      error = JSON.parse(text).error ?? {};
    } catch {
      // Not this server's own words.
    }
    const message = readable(error.message || `The server answered with status ${status}.`, 600);
    super(status === 401 ? "This server needs a token. Reload the page and give the token as the password." : message);
    this.status = status;
    // What a proxy says while the server behind it is away.
    this.away = [502, 504].includes(status) || (status === 503 && !error.code);
  }
}
const ask = async (path, method = "GET", body = undefined) => {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const reply = await fetch(`api/${path}`, { method, headers, body: JSON.stringify(body), cache: "no-store" });
  if (!reply.ok) throw new Refusal(reply.status, await reply.text());
  return reply.json();
};
// A request that nobody waits for, which also outlives the page.
const forget = (path) => fetch(`api/${path}`, { method: "DELETE", keepalive: true }).catch(() => {});
const reasonOf = (error) => (error instanceof Refusal ? error.message : "The server does not answer.");

let wake = () => {};
const pauseBeforeRetry = async (attempt) => {
  byId("lost").hidden = false;
  const text = "The connection to the server is lost. What is here stays, and the page goes on by itself when the server is back.";
  if (byId("lost").firstElementChild.textContent !== text) byId("lost").firstElementChild.textContent = text;
  await Promise.race([sleep(Math.min(10_000, 1000 * 1.6 ** attempt)), new Promise((now) => (wake = now))]);
};
const connected = () => {
  byId("lost").hidden = true;
};

// ---- Editable lines ----

class Lines {
  constructor(list, note, changed) {
    Object.assign(this, { list, note, changed });
  }
  get items() {
    return [...this.list.children];
  }
  box(item) {
    return item.firstElementChild;
  }
  get texts() {
    return this.items.map((item) => this.box(item).value.trim()).filter(Boolean);
  }
  get state() {
    return this.items.map((item) => ({ text: this.box(item).value, read: item.dataset.read ?? "" })).filter((line) => line.text);
  }
  set(lines) {
    this.list.replaceChildren();
    this.say("");
    for (const line of lines.slice(0, limits.history)) this.insert(line);
    if (!this.items.length) this.insert({ text: "" });
    if (lines.length > limits.history) this.say(`Only the first ${limits.history} lines are kept.`);
    this.settle();
  }
  // After something in the list has changed: names with the right numbers.
  settle() {
    this.items.forEach((item, index) => {
      this.box(item).setAttribute("aria-label", `Step ${index + 1} that is done${item.dataset.read ? ", read by a model" : ""}`);
      const [up, down, remove] = item.querySelectorAll("button");
      for (const [node, name] of [[up, `Move step ${index + 1} up`], [down, `Move step ${index + 1} down`], [remove, `Remove step ${index + 1}`]]) {
        node.setAttribute("aria-label", name);
        node.title = name;
      }
      up.disabled = index === 0;
      down.disabled = index === this.items.length - 1;
    });
    this.changed();
  }
  say(text) {
    this.note.textContent = text;
  }
  insert({ text, read = "" }, before = null) {
    const cut = text.length > limits.characters;
    if (cut) this.say(`A line holds at most ${limits.characters} characters; the rest was cut off.`);
    const box = make("textarea", { rows: 1, dir: "auto", maxlength: limits.characters, enterkeyhint: "enter", autocomplete: "off" });
    box.value = cut ? text.slice(0, limits.characters) : text;
    const item = make("li", { "data-read": read || null }, box);
    if (read) item.append(make("small", { class: "read" }, `read by ${readable(read, 80)}; check it`));
    item.append(
      make("span", { class: "tools" },
        button("↑", () => this.move(item, -1)), button("↓", () => this.move(item, 1)), button("✕", () => this.remove(item))),
    );
    box.addEventListener("keydown", (event) => this.key(event, item));
    box.addEventListener("input", () => this.edited(item));
    box.addEventListener("paste", (event) => this.paste(event, item));
    // Not :focus-within: what moves when a line loses the focus slips away under the finger that presses "Plan".
    box.addEventListener("focus", () => this.items.forEach((other) => other.classList.toggle("current", other === item)));
    this.list.insertBefore(item, before);
    return item;
  }
  // Adds an empty line at the end, to be written.
  add() {
    if (this.full()) return;
    const item = this.insert({ text: "" });
    this.settle();
    this.box(item).focus();
  }
  // Adds a text at the end, in place of an empty line. Says so and gives false where there are too many.
  append(text) {
    const last = this.items.at(-1);
    if (last && !this.box(last).value.trim()) last.remove();
    if (this.full()) return false;
    this.say("");
    this.insert({ text });
    this.settle();
    return true;
  }
  full() {
    const full = this.items.length >= limits.history;
    if (full) this.say(`There are ${limits.history} lines, which is the most.`);
    return full;
  }
  // Puts pieces of a longer text, of `length` characters, in place of a line.
  spread(item, pieces, length) {
    const room = limits.history - this.items.length + 1;
    this.say("");
    const lines = pieces.slice(0, room).map((text) => this.insert({ text }, item));
    item.remove();
    if (pieces.length > room || (lines.length > 1 && length > limits.history * (limits.characters + 2)))
      this.say(`Too much text: only the first ${lines.length} lines of it are here (at most ${limits.history}).`);
    this.settle();
    this.box(lines.at(-1)).focus();
  }
  paste(event, item) {
    const box = this.box(item);
    const text = event.clipboardData?.getData("text/plain") ?? "";
    const room = limits.characters - (box.value.length - (box.selectionEnd - box.selectionStart));
    if (!/[\r\n\u2028\u2029]/.test(text) && text.length <= room) return;
    event.preventDefault();
    const [before, after] = [box.value.slice(0, box.selectionStart), box.value.slice(box.selectionEnd)];
    // Without the marks of a list; what is beyond the limits is not even looked at.
    const pieces = text
      .slice(0, limits.history * (limits.characters + 2))
      .split(/\r\n|[\r\n\u2028\u2029]/)
      .map((piece) => piece.replace(/^\s*(?:[-*•–]|\d{1,3}[.):])\s+/, "").trim())
      .filter(Boolean);
    if (!pieces.length) return;
    pieces[0] = before + pieces[0];
    pieces[pieces.length - 1] += after;
    this.spread(item, pieces, text.length);
  }
  edited(item) {
    const box = this.box(item);
    this.unmark(item);
    // A keyboard of a phone, dictation and dropped text put line breaks in without a key.
    if (/[\r\n]/.test(box.value)) this.spread(item, box.value.split(/[\r\n]+/), box.value.length);
    else this.say(box.value.length >= limits.characters ? `A line holds at most ${limits.characters} characters.` : "");
    this.changed();
  }
  unmark(item) {
    if (!item.dataset.read) return;
    delete item.dataset.read;
    item.querySelector(".read")?.remove();
    this.settle();
  }
  key(event, item) {
    const box = this.box(item);
    if (event.isComposing || event.ctrlKey || event.metaKey) return;
    if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      this.move(item, event.key === "ArrowUp" ? -1 : 1, box);
    } else if (event.key === "Enter") {
      if (!this.full()) {
        const [before, after] = [box.value.slice(0, box.selectionStart), box.value.slice(box.selectionEnd)];
        box.value = before;
        const added = this.insert({ text: after }, item.nextSibling);
        this.settle();
        this.box(added).focus();
        this.box(added).setSelectionRange(0, 0);
      }
    } else if (event.key === "Backspace" && !box.value && this.items.length > 1) {
      this.remove(item);
    } else if (event.key === "ArrowUp" && !box.selectionStart && !box.selectionEnd && item.previousSibling) {
      this.box(item.previousSibling).focus();
    } else if (event.key === "ArrowDown" && box.selectionStart === box.value.length && item.nextSibling) {
      this.box(item.nextSibling).focus();
    } else return;
    event.preventDefault();
  }
  move(item, by, focus = document.activeElement) {
    const place = this.items.indexOf(item) + by;
    if (place < 0 || place >= this.items.length) return;
    this.list.insertBefore(item, by < 0 ? item.previousSibling : item.nextSibling.nextSibling);
    this.settle();
    (focus.disabled ? this.box(item) : focus).focus();
    this.say(`Now step ${place + 1} of ${this.items.length}.`);
  }
  remove(item) {
    const near = item.previousSibling ?? item.nextSibling ?? this.insert({ text: "" });
    item.remove();
    this.say("");
    this.settle();
    this.box(near).focus();
  }
  drop(text) {
    const item = this.items.findLast((line) => this.box(line).value === text);
    if (!item) return;
    item.remove();
    if (!this.items.length) this.insert({ text: "" });
    this.settle();
  }
}

// ---- What is kept over a reload of this tab ----

const readStorage = (storage, key) => {
  try {
    return globalThis[storage].getItem(key);
  } catch {
    return null; // Without storage a reload begins anew, and the name of the rater is asked again.
  }
};
const writeStorage = (storage, key, value) => {
  try {
    globalThis[storage].setItem(key, value);
  } catch {
    // As above.
  }
};
let stored = {};
try {
  stored = JSON.parse(readStorage("sessionStorage", "recipe-planner")) ?? {};
} catch {
  // Not what this page has written.
}
let raterName = readStorage("localStorage", "recipe-rater") ?? "";
const save = () => {
  const { id, goal: task, history, until, count } = board.run ?? {};
  const run = id ? { id, goal: task, history, until, count, done: ticked(), chosen: board.picked ? board.chosen : null } : null;
  const state = { goal: goal.value, lines: doneLines.state, plans: byId("plans").value, run };
  writeStorage("sessionStorage", "recipe-planner", JSON.stringify(state));
};
let saving = 0;
const saveSoon = () => {
  clearTimeout(saving);
  saving = setTimeout(save, 300);
};

// ---- Goal and history ----

const goal = byId("goal");
const doneLines = new Lines(byId("history"), byId("history-note"), saveSoon);
let before = null;

const replaceHistory = (lines) => {
  before = doneLines.state;
  byId("undo").hidden = !before.length;
  doneLines.set(lines);
};
const bindAsk = () => {
  goal.addEventListener("input", () => {
    byId("goal-note").textContent = goal.value.length >= limits.characters ? `A goal holds at most ${limits.characters} characters.` : "";
    saveSoon();
  });
  goal.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    const kept = goal.value.length - (goal.selectionEnd - goal.selectionStart);
    if (kept + text.length <= limits.characters) return;
    event.preventDefault();
    const piece = text.slice(0, Math.max(0, limits.characters - kept)).replace(/[\r\n]+/g, " ");
    goal.setRangeText(piece, goal.selectionStart, goal.selectionEnd, "end");
    byId("goal-note").textContent = `A goal holds at most ${limits.characters} characters; the rest of the ${text.length.toLocaleString("en")} was cut off.`;
    saveSoon();
  });
  goal.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    doneLines.box(doneLines.items[0]).focus();
  });
  byId("add").addEventListener("click", () => doneLines.add());
  byId("clear").addEventListener("click", () => {
    replaceHistory([]);
    doneLines.box(doneLines.items[0]).focus();
  });
  byId("undo").addEventListener("click", () => {
    doneLines.set(before ?? []);
    byId("undo").hidden = true;
    doneLines.box(doneLines.items[0]).focus();
  });
  byId("plans").addEventListener("change", saveSoon);
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    begin("plan");
  });
  byId("stop").addEventListener("click", stopRun);
  byId("again").addEventListener("click", () => begin(active.kind));
};

// ---- Runs ----

// The run that the page follows or followed last, of either kind.
let active = { over: true, kind: "plan", after: 0 };

const setStatus = (text) => {
  if (byId("status").textContent !== text) byId("status").textContent = text;
};
setInterval(() => {
  byId("seconds").textContent = active.over || !active.since ? "" : `${Math.round((performance.now() - active.since) / 1000)} s`;
}, 500);

const setRunning = (running) => {
  byId("plan").setAttribute("aria-disabled", running);
  byId("clip-read").setAttribute("aria-disabled", running);
  const hadFocus = document.activeElement === byId("stop");
  byId("stop").disabled = !running;
  if (!running && hadFocus) byId("plan").focus();
  byId("results").setAttribute("aria-busy", running);
};
const finish = (run, text, again = false) => {
  run.over = true;
  run.stream?.abort();
  if (run !== active) return;
  connected();
  setRunning(false);
  setStatus(text);
  byId("seconds").textContent = "";
  byId("again").hidden = !again;
  byId("again").textContent = run.kind === "reading" ? "Read again" : "Plan again";
  if (board.run === run) paint();
  save();
};
const stopRun = () => {
  if (active.over) return;
  if (active.id) forget(`runs/${active.id}`);
  finish(active, "Stopped.");
};
const begin = async (kind) => {
  if (!active.over) {
    setStatus("A run is being written. Stop it first.");
    return;
  }
  const [wanted, done] = [goal.value.trim(), doneLines.texts];
  if (!wanted) {
    byId("goal-note").textContent = "Say what is to be done.";
    goal.focus();
    return;
  }
  byId("goal-note").textContent = "";
  // A history is given in words or as a clip.
  const until = kind === "reading" || clipIsSeen() ? Number(byId("cut-seconds").value) : null;
  if (until !== null && !(until > 0)) {
    byId("clip-note").textContent = "Move the cut: nothing of the clip is before it.";
    byId("cut-slider").focus();
    return;
  }
  const count = Number(byId("plans").value) || limits.default_plans;
  const run = { kind, goal: wanted, history: until === null ? done : [], until, count, after: 0, over: false, since: performance.now() };
  const body = { goal: wanted, history: run.history, plans: kind === "plan" ? count : 1, kind, key: freshKey() };
  if (until !== null) Object.assign(body, { clip: clip.id, until });
  active = run;
  setRunning(true);
  setStatus("Sent to the server.");
  byId("again").hidden = true;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const reply = await ask("runs", "POST", body);
      run.id = reply.id;
      if (run.over) return forget(`runs/${run.id}`);
      connected();
      if (kind === "plan") showRun(run);
      if (reply.state === "queued") queued(run, reply);
      return follow(run);
    } catch (error) {
      if (run.over) return;
      if (error instanceof Refusal && !error.away) return finish(run, error.message);
      // The key makes the same request the same run, also where only the answer was lost.
      await pauseBeforeRetry(attempt);
      if (run.over) return;
    }
  }
};

// Follows the events of a run until it is over, over any number of connections.
const follow = async (run) => {
  for (let attempt = 0; !run.over; attempt += 1) {
    const had = run.after;
    try {
      await listen(run);
    } catch (error) {
      if (run.over) return;
      if (error instanceof Refusal && error.status === 401) return finish(run, error.message);
      if (error instanceof Refusal && error.status === 404) {
        const kept = run.restored && !run.after
          ? "The server no longer knows the run that was here. Goal and history are as they were."
          : "The server was restarted and no longer knows this run. Goal, history and what is shown here stay.";
        return finish(run, kept, true);
      }
    }
    if (run.over) return;
    if (run.after > had) attempt = 0;
    await pauseBeforeRetry(attempt);
  }
};
// One connection. A server that is silent for longer than its comments allow is taken for lost: that is why the stream is
// read here. An EventSource shows neither comments nor the status of a refusal.
const SILENCE = 40_000;
const listen = async (run) => {
  run.stream = new AbortController();
  let watch = setTimeout(() => run.stream.abort(), SILENCE);
  try {
    const headers = { Accept: "text/event-stream", ...(run.after ? { "Last-Event-ID": String(run.after) } : {}) };
    const reply = await fetch(`api/runs/${run.id}/events`, { headers, signal: run.stream.signal, cache: "no-store" });
    if (!reply.ok) throw new Refusal(reply.status, await reply.text());
    connected();
    if (reply.status === 204) return finish(run, "The run is over.");
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; !run.over; ) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => run.stream.abort(), SILENCE);
      // This server ends a line by \n and an event by an empty line, and its data is one line of JSON.
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) receive(run, Object.fromEntries(event.split("\n").map((line) => line.split(/: ?(.*)/s))));
    }
  } finally {
    clearTimeout(watch);
  }
};
const receive = (run, { id, event, data }) => {
  const number = Number(id);
  if (run.over || !data || number <= run.after) return;
  if (number !== run.after + 1) throw new Error(`event ${number} came after ${run.after}`);
  run.after = number;
  handlers[event]?.(run, JSON.parse(data));
};

const queued = (run, { position }) => setStatus(isNumber(position) ? `Waiting in the queue: place ${position}.` : "Waiting in the queue.");
const handlers = {
  queued,
  started: (run, { plans }) => {
    const how = info?.search ? "composed step by step" : "writing";
    setStatus(run.kind === "reading" ? "The clip is being read." : `${few(plans, "plan")}: ${how}.`);
    if (run.kind === "reading") return;
    for (let plan = 0; plan < plans; plan += 1) viewOf(plan);
    paint();
  },
  coverage: (run, data) => showCoverage(data),
  reading: (run, { steps }) => {
    takeReading(steps);
    run.result = steps.length
      ? `The clip is read up to ${run.until} s: ${few(steps.length, "step")}, marked in the history. Check them, then plan.`
      : "The model saw no step in the clip before the cut.";
  },
  step: (run, { plan, number, text }) => {
    const view = viewOf(plan);
    setStep(view, number, text);
    paintHead(view);
  },
  evidence: (run, data) => showEvidence(stepOf(viewOf(data.plan), data.number), data),
  plan: (run, { plan, steps, reward, adds, evidence }) => {
    const view = viewOf(plan);
    Object.assign(view, { complete: true, reward });
    steps.forEach((text, index) => setStep(view, index + 1, text));
    for (const extra of view.steps.splice(steps.length)) extra.item.remove();
    view.steps.forEach((step, index) => {
      step.adds.textContent = isNumber(adds?.[index]) ? ` · ${effect(adds[index])}` : "";
    });
    for (const row of evidence ?? []) showEvidence(stepOf(view, row.number), row);
    const complete = board.views.filter((other) => other.complete).length;
    if (complete < board.views.length) setStatus(`${complete} of ${few(board.views.length, "plan")} complete.`);
    paint();
  },
  ranking: (run, { order, rewards, same, samples }) => {
    rewards.forEach((reward, plan) => (viewOf(plan).reward = reward));
    // A search may end with fewer plans than it was asked for, and equal plans are one.
    const leave = (view) => {
      view.tab.remove();
      view.panel.remove();
    };
    board.views.splice(rewards.length).forEach(leave);
    board.samples = samples;
    for (const view of board.views.filter((one) => !samples[one.plan])) {
      const kept = board.views.find((one) => samples[one.plan] && equalPlans(one, view));
      leave(view);
      for (const step of view.steps.filter((one) => one.done)) {
        setDone(step, false);
        if (kept && !kept.steps[step.number - 1].done) setDone(kept.steps[step.number - 1], true);
      }
      if (board.chosen === view.plan) board.chosen = kept?.plan ?? order[0];
    }
    if (board.chosen >= board.views.length) board.chosen = 0;
    // Without rewards no plan is the best.
    if (rewards.some(isNumber)) {
      Object.assign(board, { order, same });
      if (!board.picked) board.chosen = order[0] ?? 0;
    }
    paint();
  },
  done: (run, { seconds, tokens, search }) => {
    const compared = search ? `; composed of ${few(search.encodings, "step")} that the verifier compared` : "";
    const spent = search?.spent ? " The budget of the search was spent: these are the best plans so far." : "";
    const spelt = isNumber(tokens) ? `, ${few(tokens, "token")}` : "";
    const counted = `${few(ranked().length, "plan")} in ${seconds.toFixed(1)} s${spelt}${compared}.${spent}`;
    finish(run, run.kind === "reading" ? run.result ?? "The clip is read." : `Done: ${counted}`);
  },
  failed: (run, { message }) => finish(run, `Failed: ${readable(message, 600)}`),
  cancelled: (run, { reason }) => finish(run, `Stopped: ${readable(reason, 300) || "the run was cancelled."}`, Boolean(run.restored)),
};

// ---- The plans of a run ----

const EMPTY = { views: [], order: null, samples: null, same: [], chosen: 0, picked: false, guess: false };
const board = { run: null, ...EMPTY };
const offer = make("p", { class: "offer" }, make("span"), " ", button("Plan the rest", () => planRest(), { class: "main" }));

const showRun = (run) => {
  offer.remove();
  Object.assign(board, { run, ...EMPTY, views: [] });
  byId("tabs").replaceChildren();
  byId("panels").replaceChildren();
  byId("coverage").hidden = true;
  byId("idle").hidden = true;
  const done = run.until == null ? few(run.history.length, "step") : `what the clip shows up to ${run.until} s`;
  byId("for").replaceChildren("For ", quoted(run.goal), ` after ${done}.`);
  byId("for").hidden = false;
  byId("paper").replaceChildren(make("h1", {}, words(run.goal)), make("p", {}, new Date().toLocaleDateString(undefined, { dateStyle: "long" })),
    make("h2", {}, "Done"), run.until == null && run.history.length ? make("ol", {}, ...run.history.map((step) => make("li", {}, words(step))))
      : make("p", {}, run.until == null ? "Nothing." : `${done}.`), make("h2", {}, "Plan"));
  // On a phone the plans are below the form.
  const { top } = byId("results").getBoundingClientRect();
  if (top > innerHeight * 0.3) document.querySelector(".go").scrollIntoView({ block: "start" });
  paint();
  save();
};
const planRest = () => {
  byId("results").focus({ preventScroll: true });
  byId("results").scrollIntoView({ block: "start" });
  begin("plan");
};
const MOST_PLANS = 64;
const viewOf = (plan) => {
  if (!(plan >= 0 && plan < MOST_PLANS)) throw new Error(`plan ${plan}`);
  while (board.views.length <= plan) addView(board.views.length);
  return board.views[plan];
};
const addView = (plan) => {
  const view = { plan, run: board.run, steps: [], complete: false, reward: null };
  view.tab = button("", () => choose(plan), { role: "tab", id: `tab-${plan}`, "aria-controls": `plan-${plan}` });
  view.head = make("p", { class: "head" });
  view.lacks = make("div", { class: "lacks", hidden: true });
  view.list = make("ol", { class: "steps" });
  view.deviation = make("details", { class: "more deviation", hidden: true }, make("summary", {}, "What happened?"));
  view.deviation.addEventListener("toggle", () => openDeviation(view));
  view.rate = make("details", { class: "more rate", hidden: true }, make("summary", {}, "Rate this plan"));
  view.rate.addEventListener("toggle", () => openRating(view));
  const note = make("span", { class: "note", role: "status" });
  const file = (ending, name) => make("a", { class: "button", href: `api/runs/${view.run.id}.${ending}?plan=${plan}`, download: true }, name);
  view.keep = make("p", { class: "row keep", hidden: true }, button("Copy", async () => (note.textContent = await copied(view))), button("Print", () => print()),
    file("md", "Markdown"), file("json", "JSON"), note);
  view.panel = make("div", { role: "tabpanel", id: `plan-${plan}`, "aria-labelledby": `tab-${plan}`, class: "plan" },
    view.head, view.lacks, view.list, view.keep, view.deviation, view.rate);
  // Who reads or works in a plan is not moved to another one.
  for (const kind of ["pointerdown", "keydown"]) view.panel.addEventListener(kind, () => (board.picked = true));
  board.views.push(view);
  byId("tabs").append(view.tab);
  byId("panels").append(view.panel);
};
// A plan as text on the clipboard. A page of another machine without TLS has no clipboard of its own, and selects.
const copied = async (view) => {
  const text = [view.run.goal, ...view.steps.map((step) => `${step.number}. ${step.corrected ?? step.text}`)].join("\n");
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = make("textarea", { class: "copied", "aria-hidden": "true" });
    box.value = text;
    const focused = document.activeElement;
    view.keep.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    focused?.focus();
    if (!done) return "This browser does not let the page copy.";
  }
  return "Copied.";
};
// The plans that are shown, the best first once they are ranked.
const ranked = () => (board.order ?? board.views.map((view) => view.plan)).map((plan) => board.views[plan]).filter((view) => view && board.samples?.[view.plan] !== 0);
const equalPlans = (one, other) => {
  const key = ({ steps }) => JSON.stringify(steps.map(({ text }) => text.toLowerCase().trim().split(/\s+/)));
  return key(one) === key(other);
};
const choose = (plan, focus = false) => {
  Object.assign(board, { chosen: plan, picked: true });
  paint();
  if (focus) board.views[plan].tab.focus();
  saveSoon();
};
// Tabs, heads and differences, after a plan is complete, ranked or chosen. Steps draw themselves.
const paint = () => {
  const views = ranked();
  const tabs = byId("tabs");
  const focused = document.activeElement;
  views.forEach((view, place) => {
    const here = view.plan === board.chosen;
    if (tabs.children[place] !== view.tab) tabs.insertBefore(view.tab, tabs.children[place] ?? null);
    view.tab.setAttribute("aria-selected", here);
    view.tab.tabIndex = here ? 0 : -1;
    view.panel.hidden = !here;
    const state = isNumber(view.reward) ? plain(view.reward) : view.complete ? few(view.steps.length, "step") : "…";
    view.tab.replaceChildren(make("span", {}, board.order ? `Rank ${place + 1}` : `Plan ${place + 1}`), " ", make("small", {}, state));
    paintHead(view);
    paintDifferences(view);
    view.keep.hidden = view.deviation.hidden = !view.complete || !view.steps.length;
    view.rate.hidden = view.deviation.hidden || !info?.keep;
  });
  if (tabs.contains(focused)) focused.focus();
  tabs.hidden = views.length < 2;
  const verifier = info?.verifier ? ` of ${readable(info.verifier.name, 60)}: ${readable(info.verifier.scale, 200)}` : "";
  byId("tabs-note").replaceChildren(board.order ? `${`Ranked by the reward${verifier}`.replace(/\.$/, "")}. ` : "",
    make("span", { class: "pointer" }, `Keys 1 to ${Math.min(9, views.length)} choose a plan.`));
  byId("tabs-note").hidden = views.length < 2;
  byId("feedback-note").hidden = !info || info.keep || !views.some((view) => view.complete);
};
const paintHead = (view) => {
  const count = few(view.steps.length, "step");
  const place = board.order ? board.order.indexOf(view.plan) + 1 : 0;
  const parts = [];
  if (!view.complete) parts.push(board.run.over ? `Not finished: ${count}.` : view.steps.length ? `Writing: ${count} so far …` : "Writing …");
  else if (!view.steps.length) parts.push("The model wrote no list of steps here.");
  else parts.push(`${count}.`);
  if (isNumber(view.reward)) parts.push(`Reward ${plain(view.reward)}${place ? `, rank ${place} of ${board.order.length}` : ""}.`);
  else if (view.complete && view.steps.length && info?.verifier) parts.push("No reward.");
  // A search composes its plans: the same plan twice says nothing.
  if (board.samples?.[view.plan] > 1 && !info?.search) parts.push(`${board.samples[view.plan]} of ${board.views.length} samples wrote this plan.`);
  view.head.replaceChildren(board.guess ? make("strong", { class: "guess" }, "? A guess") : "", board.guess ? " " : "", parts.join(" "));
  for (const step of view.steps) if (!step.row) step.evidence.textContent = pendingText(view);
};
const paintDifferences = (view) => {
  const best = board.order ? board.views[board.order[0]] : null;
  const same = board.same[view.plan] ?? [];
  view.steps.forEach((step, index) => {
    step.other.hidden = !best || best === view || same[index] != null || !view.complete;
  });
  const missing = !best || best === view || !view.complete ? [] : best.steps.filter((_, index) => !same.includes(index + 1));
  view.lacks.hidden = !missing.length;
  view.lacks.replaceChildren(
    make("p", {}, `${few(missing.length, "step")} of the best plan ${missing.length === 1 ? "is" : "are"} not here:`),
    make("ul", {}, ...missing.map((step) => make("li", {}, words(step.text, 300)))),
  );
};
const bindTabs = () => {
  byId("tabs").addEventListener("keydown", (event) => {
    const views = ranked();
    const place = views.findIndex((view) => view.plan === board.chosen);
    const next = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: -1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(views.at(next % views.length).plan, true);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
      event.preventDefault();
      const editor = event.target.closest?.("[data-compare]");
      if (editor) editor.querySelector(".compare").click();
      else begin("plan");
      return;
    }
    if (event.ctrlKey || event.altKey || event.metaKey || isText(event.target) || !/^[1-9]$/.test(event.key)) return;
    const view = ranked()[Number(event.key) - 1];
    if (view && board.views.length > 1) choose(view.plan, byId("tabs").contains(document.activeElement));
  });
};
const COVERAGE = { known: "✓ Known.", partly: "◐ Known in part.", unknown: "? Not known.", none: "– Not checked." };
const showCoverage = ({ state, sentence }) => {
  const banner = byId("coverage");
  banner.dataset.state = state;
  banner.firstElementChild.textContent = COVERAGE[state] ?? COVERAGE.none;
  banner.lastElementChild.textContent = readable(sentence, 600);
  banner.hidden = false;
  board.guess = state === "unknown";
  paint();
};

// ---- One step ----

const pendingText = (view) => (!info?.verifier ? "" : board.run.over ? "not compared with the narrations" : "… looking for narrations");
const stepOf = (view, number) => {
  if (!(number >= 1 && number <= 1000)) throw new Error(`step ${number}`);
  while (view.steps.length < number) addStep(view, view.steps.length + 1);
  return view.steps[number - 1];
};
const setStep = (view, number, text) => {
  const step = stepOf(view, number);
  if (step.text && step.text !== text) {
    // What was said of the step that stood here is not said of this one.
    Object.assign(step, { row: null, grounds: undefined });
    step.evidence.textContent = pendingText(view);
  }
  step.text = text;
  step.words.textContent = readable(text);
};
const addStep = (view, number) => {
  const step = { view, number, text: "", row: null, done: false };
  step.words = make("bdi", { dir: "auto", class: "words" });
  step.other = make("span", { class: "other", hidden: true }, "≠ not in the best plan");
  step.evidence = make("div", { class: "evidence" }, pendingText(view));
  step.adds = make("span", { class: "adds" });
  step.tick = make("input", { type: "checkbox", "aria-label": `Done: step ${number}`, onchange: () => toggleDone(step) });
  step.acts = make("div", { class: "acts" }, make("label", {}, step.tick, " Done"));
  step.said = make("p", { class: "note said", role: "status" });
  step.item = make("li", {}, make("div", { class: "line" }, step.words, " ", step.other), step.evidence, step.acts, step.said);
  if (info?.keep) bindVerdicts(step);
  view.steps.push(step);
  view.list.append(step.item);
  if (view.run.restored?.done?.includes(`${view.plan}.${number}`)) setDone(step, true);
};
const groundLine = ({ text, video_id, title, when, link, similarity }) => {
  const place = readable([title || video_id, when].filter(Boolean).join(" · "), 300);
  const safe = /^https?:\/\//i.test(link ?? "");
  const source = safe ? make("a", { href: link, target: "_blank", rel: "noopener noreferrer" }, words(place)) : words(place);
  return make("li", {}, quoted(text), " ", make("span", { class: "meta" }, source, isNumber(similarity) ? ` · similarity ${similarity.toFixed(2)}` : ""));
};
// Changes only what differs, so that opened grounds stay open when the alignment is refined.
const showEvidence = (step, row) => {
  const grounds = row.grounds ?? [];
  const key = JSON.stringify(grounds);
  // What narrations of other tasks say supports no plan.
  const supported = row.state === "supported" && !board.guess;
  const count = `${aboutThis(row.matched_in, row.about)} ${row.matched_in === 1 ? "says" : "say"}`;
  const opposed = row.opposed_in ? `; ${row.opposed_in} ${row.opposed_in === 1 ? "says" : "say"} the opposite` : "";
  const other = `of other tasks: ${few(row.matched_in, "video")} ${row.matched_in === 1 ? "says" : "say"} something like it`;
  const none = row.about && !board.guess ? `${aboutThis(0, row.about)} ${row.about === 1 ? "does not say" : "say"} so` : "no video is about this";
  const near = !row.pool ? "not compared with the narrations" : !row.matched_in ? none : board.guess ? other : `not supported: ${count} something like it`;
  const said = (supported ? `${count} so` : near) + opposed;
  const sign = make("span", { class: supported ? "sign yes" : "sign no", "aria-hidden": "true" }, supported ? "✓" : "○");
  const line = [sign, ` ${said}`, step.adds];
  if (!grounds.length) {
    step.evidence.replaceChildren(...line);
  } else {
    if (!step.evidence.querySelector("details")) {
      const more = make("details", {}, make("summary", {}), make("ul", { class: "grounds" }));
      step.evidence.replaceChildren(make("div", {}), make("ul", { class: "grounds" }), more);
    }
    const [said, first, more] = step.evidence.children;
    said.replaceChildren(...line);
    if (step.grounds !== key) {
      first.replaceChildren(groundLine(grounds[0]));
      more.hidden = grounds.length === 1;
      more.firstElementChild.textContent = `${grounds.length - 1} more`;
      more.lastElementChild.replaceChildren(...grounds.slice(1).map(groundLine));
    }
  }
  Object.assign(step, { row, grounds: key });
};

const ticked = () => board.views.flatMap((view) => view.steps.filter((step) => step.done).map((step) => `${view.plan}.${step.number}`));
const setDone = (step, done) => {
  step.done = done;
  step.tick.checked = done;
  step.item.classList.toggle("ticked", done);
  const { view } = step;
  view.ticked = (view.ticked ?? []).filter((other) => other !== step).concat(done ? [step] : []);
};
const toggleDone = (step) => {
  const text = (step.corrected ?? step.text).trim();
  if (step.tick.checked && !doneLines.append(text)) {
    step.tick.checked = false;
    step.said.textContent = byId("history-note").textContent;
    return;
  }
  if (!step.tick.checked) doneLines.drop(text.slice(0, limits.characters));
  setDone(step, step.tick.checked);
  const { view } = step;
  const last = view.ticked.at(-1);
  offer.remove();
  if (last) {
    const all = view.complete && view.ticked.length === view.steps.length;
    const moved = `${few(view.ticked.length, "step")} moved into the history.`;
    const seen = clipIsSeen() ? " The planner sees the clip in place of the history: move the cut, or take the mark off the clip." : "";
    offer.firstElementChild.textContent = all ? "All steps of this plan are done." : moved + seen;
    offer.lastElementChild.hidden = all || Boolean(seen);
    last.item.append(offer);
  }
  save();
};

// ---- Feedback ----

const giveFeedback = async (view, fields, note, thanks) => {
  const body = { plan: view.plan, ...(raterName ? { rater: raterName } : {}), ...fields };
  try {
    await ask(`runs/${view.run.id}/feedback`, "POST", body);
    note.textContent = thanks;
    return true;
  } catch (error) {
    note.textContent = `Not kept: ${reasonOf(error)}`;
    return false;
  }
};
const bindVerdicts = (step) => {
  const { view, number } = step;
  const give = async (pressed, fields, thanks) => {
    if (!(await giveFeedback(view, { step: number, ...fields }, step.said, thanks))) return;
    for (const verdict of verdicts) verdict.setAttribute("aria-pressed", verdict === pressed);
    if (fields.verdict !== "correct") step.corrected = undefined;
  };
  const keep = button("Keep", () => give(keep, { verdict: "keep" }, "Kept as right."), { "aria-label": `Keep step ${number}`, "aria-pressed": "false" });
  const reject = button("Reject", () => give(reject, { verdict: "reject" }, "Kept as rejected."), { "aria-label": `Reject step ${number}`, "aria-pressed": "false" });
  const correct = button("Correct", () => {
    field.hidden = !field.hidden;
    correct.setAttribute("aria-expanded", !field.hidden);
    if (field.hidden) return;
    box.value = (step.corrected ?? step.text).slice(0, limits.characters);
    box.focus();
  }, { "aria-label": `Correct step ${number}`, "aria-pressed": "false", "aria-expanded": "false" });
  const verdicts = [keep, reject, correct];
  const close = () => {
    field.hidden = true;
    correct.setAttribute("aria-expanded", "false");
    correct.focus();
  };
  const box = make("textarea", { rows: 2, dir: "auto", maxlength: limits.characters, "aria-label": `What step ${number} should say` });
  const field = make("div", { class: "correction", hidden: true }, box, make("div", { class: "row" },
    button("Save the correction", async () => {
      const text = box.value.trim();
      if (!text) {
        step.said.textContent = "Write what the step should say, or reject it.";
        return box.focus();
      }
      await give(correct, { verdict: "correct", text }, `Corrected: ${readable(text, 300)}`);
      if (correct.getAttribute("aria-pressed") === "true") step.corrected = text;
      return close();
    }),
    button("Cancel", close)));
  field.addEventListener("keydown", (event) => event.key === "Escape" && close());
  step.acts.append(...verdicts);
  step.acts.after(field);
};
const openRating = (view) => {
  if (!view.rate.open || view.rate.children.length > 1) return;
  const rows = Object.entries(info.criteria ?? {}).map(([criterion, meaning]) => {
    const id = `rate-${view.plan}-${criterion}`;
    const marks = Array.from({ length: (info.highest ?? 5) + 1 }, (_, mark) =>
      make("label", {}, make("input", { type: "radio", name: id, value: mark }), make("span", {}, String(mark))));
    return make("fieldset", { "aria-describedby": `${id}-is` }, make("legend", {}, readable(criterion, 80).replaceAll("_", " ")),
      make("p", { class: "note", id: `${id}-is` }, readable(meaning, 400)), make("div", { class: "marks", "data-criterion": criterion }, ...marks));
  });
  const comment = make("textarea", { rows: 2, dir: "auto", maxlength: 4 * limits.characters });
  const rater = make("input", { type: "text", dir: "auto", maxlength: 100, autocomplete: "name", value: raterName });
  const note = make("p", { class: "note", role: "status" });
  const send = async () => {
    raterName = rater.value.trim();
    writeStorage("localStorage", "recipe-rater", raterName);
    const scores = {};
    for (const row of view.rate.querySelectorAll(".marks")) {
      const chosen = row.querySelector("input:checked");
      if (chosen) scores[row.dataset.criterion] = Number(chosen.value);
    }
    const said = comment.value.trim();
    const fields = { ...(Object.keys(scores).length ? { scores } : {}), ...(said ? { comment: said } : {}) };
    if (!Object.keys(fields).length) note.textContent = "Choose a mark or write a comment.";
    else await giveFeedback(view, fields, note, "Thank you. The rating is kept.");
  };
  view.rate.append(make("p", { class: "note" }, `0 is worst, ${info.highest ?? 5} is best. What you leave out is not counted.`), ...rows,
    make("label", { class: "block" }, "Comment", comment), make("label", { class: "block" }, "Your name (optional)", rater),
    make("p", { class: "row" }, button("Send the rating", send)), note);
};

// ---- What happened instead ----

const openDeviation = (view) => {
  if (!view.deviation.open || view.deviation.children.length > 1) return;
  if (info && !info.verifier) {
    view.deviation.append(make("p", { class: "note" }, "What was done is compared with the plan where there is a corpus: start the server with --corpus."));
    return;
  }
  const note = make("p", { class: "note", role: "status" });
  const list = make("ol", { class: "lines", "aria-label": "What was done" });
  const result = make("div", { class: "result" });
  const lines = new Lines(list, note, () => {});
  const fill = () => lines.set([...view.run.history, ...(view.ticked ?? []).map((step) => step.corrected ?? step.text)].map((text) => ({ text })));
  const compare = async () => {
    const done = lines.texts;
    try {
      const answer = await ask(`runs/${view.run.id}/deviation`, "POST", { plan: view.plan, history: done });
      showDeviation(result, answer, done, note);
    } catch (error) {
      note.textContent = reasonOf(error);
    }
  };
  fill();
  view.deviation.append(
    make("div", { "data-compare": "" },
      make("p", { class: "note" }, "Write what was really done, in its order. It is compared with this plan."),
      list,
      make("p", { class: "row" }, button("Add a step", () => lines.add()), button("Fill in again", fill), button("Compare with the plan", compare, { class: "main compare" })),
      note),
    result,
  );
};
const STATES = { done: ["✓", "done"], skipped: ["!", "skipped"], open: ["○", "still open"] };
const showDeviation = (result, { steps, unexpected, rest, orders }, done, note) => {
  const count = (state) => steps.filter((step) => step.state === state).length;
  note.textContent = `${count("done")} done, ${count("skipped")} skipped, ${count("open")} still open; ${few(unexpected.length, "unexpected step")}.`;
  const stepLine = (step) => {
    const [sign, word] = STATES[step.state] ?? ["?", readable(step.state, 20)];
    const by = step.by != null && done[step.by] != null && done[step.by] !== step.text ? [" by ", quoted(done[step.by])] : [];
    return make("li", { value: step.number, "data-state": step.state }, make("strong", {}, make("span", { "aria-hidden": "true" }, `${sign} `), word), " ", words(step.text), ...by);
  };
  const orderLine = (order) => {
    const opposite = order.against ? `; ${order.against} ${order.against === 1 ? "says" : "say"} the opposite` : "";
    const claim = [": ", quoted(order.before), " comes before ", quoted(order.after), `${opposite}.`];
    const count = order.says ? `${aboutThis(order.says, order.about).replace("the only", "The only")} ${order.says === 1 ? "says" : "say"}` : "No video about this says";
    const grounds = order.grounds ?? [];
    if (!grounds.length) return make("p", {}, count, ...claim);
    return make("details", {}, make("summary", {}, count, ...claim), ...grounds.map((pair) => make("ul", { class: "grounds" }, groundLine(pair.before), groundLine(pair.after))));
  };
  result.replaceChildren(
    make("ol", { class: "states" }, ...steps.map(stepLine)),
    ...(unexpected.length ? [make("p", {}, "In neither the plan nor the old history:"), make("ul", {}, ...unexpected.map((index) => make("li", {}, words(done[index]))))] : []),
    ...(orders.length ? [make("h3", {}, "What the narrations say of the order"), ...orders.map(orderLine)] : []),
    make("p", { class: "row" }, rest.length ? `${few(rest.length, "step")} of the plan ${rest.length === 1 ? "is" : "are"} open.` : "No step of the plan is open.",
      button("Plan the rest from here", () => {
        replaceHistory(done.map((text) => ({ text })));
        planRest();
      }, { class: "main" })),
  );
};

// ---- A clip ----

const clip = { id: null, file: null, url: null, upload: null };
const bytes = (count) => (count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : count >= 1e6 ? `${(count / 1e6).toFixed(0)} MB` : `${Math.ceil(count / 1e3)} kB`);

const removeClip = (note = "") => {
  clip.upload?.abort();
  if (clip.id) forget(`clips/${clip.id}`);
  if (clip.url) URL.revokeObjectURL(clip.url);
  Object.assign(clip, { id: null, file: null, url: null, upload: null });
  const video = byId("clip-video");
  video.removeAttribute("src");
  video.load();
  byId("clip-work").hidden = true;
  byId("clip-note").textContent = note;
  for (const input of [byId("clip-file"), byId("clip-camera")]) input.value = "";
};
const setCut = (seconds, from) => {
  const most = Number(byId("cut-slider").max);
  const cut = Math.floor(Math.min(most, Math.max(0, Number(seconds) || 0)) * 100) / 100;
  if (from !== "slider") byId("cut-slider").value = cut;
  if (from !== "number") byId("cut-seconds").value = cut;
  byId("cut-slider").setAttribute("aria-valuetext", `${cut} seconds`);
  const video = byId("clip-video");
  if (!video.hidden && Number.isFinite(video.duration)) video.currentTime = Math.min(cut, video.duration);
};
const takeClip = (file) => {
  removeClip();
  const subject = `${readable(file.name, 80)} (${bytes(file.size)})`;
  if (!file.size) return removeClip(`${subject} is empty. Choose another clip.`);
  if (file.size > limits.clip_bytes) return removeClip(`${subject} is too large: at most ${bytes(limits.clip_bytes)} are taken. Cut it, or record it with fewer pixels.`);
  const video = byId("clip-video");
  Object.assign(clip, { file, url: URL.createObjectURL(file) });
  video.hidden = false;
  video.src = clip.url;
  for (const id of ["cut", "clip-read", "clip-seen-row"]) byId(id).hidden = true;
  byId("clip-work").hidden = false;
  byId("clip-upload").hidden = false;
  byId("clip-note").textContent = `${subject}: being sent to the server.`;
  const upload = new XMLHttpRequest();
  clip.upload = upload;
  const progress = (share) => {
    byId("clip-progress").value = share;
    byId("clip-percent").textContent = `${Math.floor(100 * share)}%`;
  };
  progress(0);
  upload.upload.onprogress = (event) => progress(event.lengthComputable ? event.loaded / event.total : 0);
  upload.onload = () => {
    if (clip.upload !== upload) return;
    clip.upload = null;
    if (upload.status !== 201) return removeClip(`${subject}: ${new Refusal(upload.status, upload.responseText).message}`);
    haveClip(JSON.parse(upload.responseText), subject);
  };
  upload.onerror = () => clip.upload === upload && removeClip(`${subject}: the upload was interrupted. Choose the clip again.`);
  upload.open("POST", "api/clips");
  upload.setRequestHeader("Content-Type", "application/octet-stream");
  upload.send(file);
};
const haveClip = ({ id, seconds, width, height, complete }, subject) => {
  clip.id = id;
  byId("clip-upload").hidden = true;
  const most = Math.floor(seconds * 100) / 100;
  byId("cut-slider").max = byId("cut-seconds").max = most;
  byId("cut").hidden = false;
  byId("clip-read").hidden = !info.phi;
  byId("clip-seen-row").hidden = !info.model.sees_video;
  const size = `${seconds.toFixed(1)} s, ${width} × ${height}`;
  byId("clip-note").textContent = `${subject}: ${size}.${complete ? "" : " The file ends early; only this much can be read."}`;
  setCut(most);
};
const clipIsSeen = () => Boolean(clip.id && info?.model.sees_video && byId("clip-seen").checked);
const takeReading = (steps) => {
  // A new reading replaces the lines of the last one that nobody has edited.
  const own = doneLines.state.filter((line) => !line.read);
  replaceHistory([...own, ...steps.map((text) => ({ text, read: info?.phi?.name ?? "a model" }))]);
};
const bindClip = () => {
  for (const input of [byId("clip-file"), byId("clip-camera")]) input.addEventListener("change", () => input.files[0] && takeClip(input.files[0]));
  byId("clip-cancel").addEventListener("click", () => removeClip("The upload was cancelled."));
  byId("clip-remove").addEventListener("click", () => removeClip("The clip is removed."));
  byId("clip-read").addEventListener("click", () => begin("reading"));
  byId("cut-slider").addEventListener("input", () => setCut(byId("cut-slider").value, "slider"));
  byId("cut-seconds").addEventListener("input", () => setCut(byId("cut-seconds").value, "number"));
  byId("cut-seconds").addEventListener("change", () => setCut(byId("cut-seconds").value));
  byId("clip-video").addEventListener("error", () => {
    if (!clip.file) return;
    byId("clip-video").hidden = true;
    if (clip.id) byId("clip-note").textContent += " This browser cannot show it; the cut can be set all the same.";
  });
  byId("clip-video").addEventListener("loadedmetadata", ({ target }) => {
    if (clip.file && target.duration > limits.clip_seconds) removeClip(`${readable(clip.file.name, 80)} is too long: at most ${few(limits.clip_seconds, "second")} are taken. Cut it first.`);
  });
  const takes = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!takes(event)) return;
    event.preventDefault();
    byId("clip").classList.add("over");
  });
  addEventListener("dragleave", (event) => event.relatedTarget === null && byId("clip").classList.remove("over"));
  addEventListener("drop", (event) => {
    byId("clip").classList.remove("over");
    if (!takes(event)) return;
    event.preventDefault();
    if (!byId("clip-on").hidden && event.dataTransfer.files[0]) takeClip(event.dataTransfer.files[0]);
  });
};

// ---- The beginning ----

const showInfo = () => {
  const { model, phi, corpus, verifier } = info;
  byId("default").textContent = readable(info.default, 600);
  byId("default").hidden = !info.default;
  byId("about").replaceChildren(
    "Model: ", words(model.name, 120), ". ",
    ...(phi ? ["Clips are read by ", words(phi.name, 120), ". "] : []),
    ...(corpus
      ? ["Corpus: ", make("bdi", { title: readable(corpus.id, 80) }, readable(corpus.id.slice(0, 12))), `, ${few(corpus.narrations, "narration")}, ${few(corpus.segments, "segment")}. `, corpus.too_small ? `${readable(corpus.too_small, 400)} ` : ""].filter(Boolean)
      : ["No corpus: nothing checks the plans. "]),
    ...(verifier ? ["Verifier: ", words(verifier.name, 60), "."] : []),
    info.search ? " It chooses the plans step by step." : "",
  );
  const chosen = byId("plans").value || stored.plans || limits.default_plans;
  byId("plans").replaceChildren(...Array.from({ length: limits.plans }, (_, index) => make("option", {}, String(index + 1))));
  byId("plans").value = String(Math.min(limits.plans, chosen));
  goal.maxLength = limits.characters;
  const examples = (info.examples ?? []).map((example) =>
    make("li", {}, button(words(example.goal, 120), () => {
      goal.value = example.goal.slice(0, limits.characters);
      replaceHistory(example.history.map((text) => ({ text })));
    })));
  byId("examples").lastElementChild.replaceChildren(...examples);
  byId("examples").hidden = !examples.length;
  const sees = Boolean(phi || model.sees_video);
  byId("clip-on").hidden = !sees;
  byId("clip-off").hidden = sees;
  byId("clip-off").textContent = "This server reads no clips: start it with --phi, or with a model that sees video.";
  byId("ratings").hidden = !info.keep;
  byId("feedback-note").textContent = "Feedback is not kept: start the server with --keep FOLDER.";
};
const begun = async () => {
  goal.value = (stored.goal ?? "").slice(0, limits.characters);
  doneLines.set(stored.lines ?? []);
  byId("undo").hidden = true;
  bindAsk();
  bindTabs();
  bindClip();
  byId("retry").addEventListener("click", () => wake());
  addEventListener("online", () => wake());
  addEventListener("beforeprint", () => {
    for (const node of document.querySelectorAll(".plan:not([hidden]) .evidence details:not([open])")) {
      node.open = true;
      node.dataset.printed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const node of document.querySelectorAll("[data-printed]")) {
      node.open = false;
      delete node.dataset.printed;
    }
  });
  // Who leaves frees the model; who reloads goes on. A browser that cannot tell them apart leaves it to the server,
  // which ends runs that nobody reads.
  let reloads = !("onpageswap" in globalThis);
  addEventListener("pageswap", (event) => (reloads = event.activation?.navigationType === "reload"));
  addEventListener("pagehide", () => {
    save();
    if (clip.id) forget(`clips/${clip.id}`);
    if (!reloads && !active.over && active.id) forget(`runs/${active.id}`);
  });
  for (let attempt = 0; !info; attempt += 1) {
    try {
      info = await ask("info");
    } catch (error) {
      if (error instanceof Refusal && !error.away) return setStatus(error.message);
      await pauseBeforeRetry(attempt);
    }
  }
  connected();
  limits = { ...limits, ...info.limits };
  showInfo();
  if (stored.run?.id && !board.run && active.over) {
    const run = { kind: "plan", ...stored.run, restored: stored.run, after: 0, over: false, since: performance.now() };
    active = run;
    setRunning(true);
    setStatus("The run of before is being read again.");
    showRun(run);
    if (isNumber(stored.run.chosen)) Object.assign(board, { chosen: stored.run.chosen, picked: true });
    follow(run);
  }
};
begun();
