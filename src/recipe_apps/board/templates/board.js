// The parts of the board that need a token: submit, my submissions, the owner's page. All texts are set as text.

const page = document.body.dataset.page;
const $ = (id) => document.getElementById(id);
const POLL = 3000;

function make(tag, fields = {}, ...children) {
  const { data, ...plain } = fields;
  const node = Object.assign(document.createElement(tag), plain);
  for (const [name, value] of Object.entries(data ?? {})) node.dataset[name] = value;
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const kept = {
  get: () => { try { return sessionStorage.getItem("token") ?? ""; } catch { return token; } },
  set: (value) => { token = value; try { value ? sessionStorage.setItem("token", value) : sessionStorage.removeItem("token"); } catch { /* kept for this page */ } },
};
let token = "";

class Refused extends Error {
  constructor(message, status, body) { super(message); this.status = status; this.body = body; }
}

async function ask(path, { method = "GET", json, lines } = {}) {
  const headers = {};
  if (kept.get()) headers.Authorization = `Bearer ${kept.get()}`;
  if (json !== undefined) headers["Content-Type"] = "application/json";
  if (lines !== undefined) headers["Content-Type"] = "application/x-ndjson";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: lines ?? (json === undefined ? undefined : JSON.stringify(json)) });
  } catch {
    throw new Refused("The board does not answer. Try again in a moment; nothing is lost.", 0, {});
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(body.error?.message ?? `The board answered with status ${answer.status}.`, answer.status, body);
  return body;
}

function failed(error) {
  const box = $("failure");
  if (!box) return;
  box.hidden = !error;
  box.textContent = error ? error.message : "";
}

async function guarded(work) {
  try { failed(null); return await work(); } catch (error) {
    if (!(error instanceof Refused)) throw error;
    failed(error);
    return undefined;
  }
}

const when = (seconds) => {
  const at = new Date(seconds * 1000);
  return make("time", { dateTime: at.toISOString(), textContent: `${at.toISOString().slice(0, 10)} ${at.toISOString().slice(11, 19)} UTC` });
};

const number = (value, digits) => `${value.mean.toFixed(digits)}${value.low === null ? (value.reason ? ` (no interval: ${value.reason})` : "") : ` (${value.low.toFixed(digits - 1)} to ${value.high.toFixed(digits - 1)})`}`.replaceAll("-", "−");

function jobLine(job) {
  const parts = [make("a", { href: `/boards/${job.board}`, textContent: job.label }), ": ", make("span", { className: `state ${job.state}`, textContent: job.state })];
  if (job.value) parts.push(` ${number(job.value, job.digits)}`);
  if (job.place) parts.push(`, place ${job.place}`);
  if (job.position) parts.push(`, place ${job.position} in the queue`);
  if (job.reason) parts.push(`: ${job.reason}`);
  return make("li", { dir: "auto" }, ...parts);
}

function table(headings, rows) {
  const head = make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", { scope: "col", textContent: text }))));
  const body = make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, column) => {
    const node = make(column ? "td" : "th", { dir: "auto" });
    if (!column) node.scope = "row";
    node.append(...(Array.isArray(cell) ? cell : [cell ?? ""]));
    return node;
  }))));
  return make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, head, body));
}

const button = (text, label, click) => {
  const node = make("button", { type: "button", textContent: text, onclick: click });
  node.setAttribute("aria-label", label);
  return node;
};

// A second press does it: no dialog of the browser, and no slip of the finger.
const twice = (text, label, act) => {
  const node = button(text, label, () => {
    if (node.dataset.sure) { act(); return; }
    node.dataset.sure = "yes";
    node.textContent = `Sure? ${text}`;
    node.setAttribute("aria-label", `Sure? ${label}`);
    setTimeout(() => { delete node.dataset.sure; node.textContent = text; node.setAttribute("aria-label", label); }, 6000);
  });
  return node;
};

// Token

let me = null;
async function identify(load) {
  me = null;
  if (kept.get()) me = await guarded(() => ask("/api/me"));
  $("who").textContent = me ? `You are ${me.display} (${me.name})${me.role === "owner" ? ", an owner" : ""}.` : kept.get() ? "" : "No token: the owner of the board gives one.";
  $("forget").hidden = !kept.get();
  $("token-field").value = "";
  await load();
}

function withToken(load) {
  $("token").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("token-field").value.trim()) kept.set($("token-field").value.trim());
    identify(load);
  });
  $("forget").addEventListener("click", () => { kept.set(""); failed(null); identify(load); });
  identify(load);
}

// Submit

function submitPage() {
  let file = null, passed = false, follow = null;
  const ready = () => {
    $("check").disabled = !file || !$("track").value;
    $("send").disabled = !(passed && me && $("system").value.trim());
    $("send").title = passed ? "" : "Check the file first.";
  };
  const choose = (chosen) => {
    file = chosen ?? null; passed = false;
    $("chosen").textContent = file ? `${file.name}, ${file.size.toLocaleString("en")} bytes` : "or drop one here: predictions as JSON lines";
    $("outcome").textContent = ""; $("problems").hidden = true; ready();
  };
  const show = (checked) => {
    const list = $("problems").querySelector("ol");
    list.replaceChildren(...checked.problems.map((problem) => make("li", { dir: "auto", textContent: `${problem.line ? `line ${problem.line}` : "the file"}${problem.field ? `, ${problem.field}` : ""}: ${problem.problem}; ${problem.remedy}.` })));
    if (checked.more) list.append(make("li", { textContent: `and ${checked.more} more` }));
    $("problems").hidden = checked.ok;
    if (!checked.ok) $("problems").focus();
  };
  const track = () => { $("questions").href = `/api/tracks/${encodeURIComponent($("track").value)}/questions.jsonl`; passed = false; ready(); };
  const watch = async (id) => {
    clearTimeout(follow);
    const answer = await guarded(() => ask(`/api/submissions/${id}`));
    if (answer) {
      $("sent").hidden = false;
      const link = $("sent").querySelector("a");
      link.href = `/systems/${id}`; link.textContent = `${answer.submission.system}, submission ${id}`;
      $("sent").querySelector("ul").replaceChildren(...answer.submission.jobs.map(jobLine));
    }
    if (!answer || answer.submission.jobs.some((job) => job.state === "queued" || job.state === "running")) follow = setTimeout(() => watch(id), POLL);
  };

  guarded(async () => {
    const { tracks } = await ask("/api/boards");
    $("track").replaceChildren(...tracks.filter((track) => !track.closed).map((track) => make("option", { value: track.name, textContent: track.title })));
    track();
  });
  $("track").addEventListener("change", track);
  $("system").addEventListener("input", ready);
  $("file").addEventListener("change", () => choose($("file").files[0]));
  for (const name of ["dragover", "dragleave", "drop"]) {
    $("drop").addEventListener(name, (event) => {
      event.preventDefault();
      $("drop").classList.toggle("over", name === "dragover");
      if (name === "drop") choose(event.dataTransfer.files[0]);
    });
  }
  $("check").addEventListener("click", () => guarded(async () => {
    $("outcome").textContent = "checking …";
    try {
      const checked = await ask(`/api/check?track=${encodeURIComponent($("track").value)}`, { method: "POST", lines: file });
      passed = checked.ok;
      $("outcome").textContent = checked.ok ? `${checked.plans.toLocaleString("en")} plans, no problem.` : `${checked.problems.length + checked.more} problems.`;
      show(checked);
    } catch (error) { $("outcome").textContent = ""; throw error; } finally { ready(); }
  }));
  $("submit").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("send").disabled) return;
    $("send").disabled = true;
    guarded(async () => {
      const about = new URLSearchParams({ track: $("track").value, system: $("system").value, link: $("link").value, note: $("note").value, private: $("private").checked ? "1" : "0" });
      try {
        const sent = await ask(`/api/submissions?${about}`, { method: "POST", lines: file });
        $("outcome").textContent = sent.new ? "Sent." : "These plans were sent before: it is the same submission.";
        await watch(sent.id);
        $("sent").focus();
      } catch (error) { if (error.body?.problems) show({ ok: false, more: 0, ...error.body }); throw error; } finally { ready(); }
    });
  });
  withToken(async () => ready());
}

// My submissions

function minePage() {
  let follow = null;
  const load = async () => {
    clearTimeout(follow);
    if (!me) { $("list").replaceChildren(); $("quotas").textContent = ""; return; }
    const answers = await guarded(async () => [await ask("/api/me"), (await ask("/api/me/submissions")).submissions]);
    if (!answers) return;
    const [account, submissions] = answers;
    $("quotas").textContent = account.quotas.map((quota) => `${quota.track}: ${quota.day.used} of ${quota.day.limit} in 24 hours, ${quota.total.used} of ${quota.total.limit} in all`).join(" · ");
    const change = (path, options) => guarded(async () => { await ask(path, options); await load(); });
    if (!$("list").contains(document.activeElement) || document.activeElement === $("list")) {
      $("list").replaceChildren(...submissions.map((submission) => make("article", {},
        make("h2", { dir: "auto" }, make("a", { href: `/systems/${submission.id}`, textContent: submission.system })),
        make("p", { className: "meta" }, `${submission.track_title} · ${submission.id} · `, when(submission.created), submission.private ? " · private" : "", submission.withdrawn ? " · withdrawn" : ""),
        make("ul", { className: "plain" }, ...submission.jobs.map(jobLine)),
        submission.withdrawn ? null : make("p", { className: "row" },
          button(submission.private ? "Make public" : "Make private", `${submission.private ? "Make public" : "Make private"}: ${submission.system}, ${submission.id}`, () => { document.activeElement.blur(); change(`/api/submissions/${submission.id}`, { method: "PATCH", json: { private: !submission.private } }); }),
          twice("Withdraw", `Withdraw ${submission.system}, ${submission.id}`, () => { document.activeElement.blur(); change(`/api/submissions/${submission.id}/withdraw`, { method: "POST" }); })))));
      if (!submissions.length) $("list").replaceChildren(make("p", { textContent: "Nothing is sent yet." }));
    }
    if (submissions.some((submission) => submission.jobs.some((job) => job.state === "queued" || job.state === "running"))) follow = setTimeout(load, POLL);
  };
  withToken(load);
}

// Owner

function ownerPage() {
  let oldest = null;
  const logged = (lines) => table(["Time", "Who", "What", "Of", "Change", "Reason"], lines.map((entry) => [when(entry.time), entry.actor, entry.action, entry.object, [entry.before, entry.after].filter(Boolean).join(" → "), entry.reason]));
  const load = async () => {
    const value = me ? await guarded(() => ask("/api/owner")) : undefined;
    if (!value) { $("owner").hidden = true; return; }
    $("owner").hidden = false;
    const act = (path, json) => guarded(async () => { const answer = await ask(path, { method: "POST", json }); await load(); return answer; });
    const shown = (name, answer) => {
      if (!answer) return;
      $("new-token").hidden = false;
      $("new-token").querySelector("strong").textContent = name;
      $("new-token").querySelector("code").textContent = answer.token;
    };
    $("accounts").replaceChildren(table(["Name", "Role", "Shown as", "Submissions", "Tokens", "Actions"], value.accounts.map((account) => [account.name, account.role, account.display, String(account.submissions), String(account.tokens),
      account.name === "board" ? "makes the control rows" : account.revoked ? "revoked" : make("span", { className: "row" }, button("New token", `New token for ${account.name}`, async () => shown(account.name, await act(`/api/owner/accounts/${account.name}/token`))), twice("Revoke", `Revoke ${account.name}`, () => act(`/api/owner/accounts/${account.name}/revoke`)))])));
    $("tracks").replaceChildren(table(["Track", "Questions", "Results", "Submissions"], value.tracks.map((track) => [track.title, String(track.examples),
      make("span", { className: "row" }, track.published ? "published " : "hidden ", twice(track.published ? "Hide" : "Publish", `${track.published ? "Hide" : "Publish"} the results of ${track.title}`, () => act(`/api/owner/tracks/${track.name}`, { published: !track.published }))),
      make("span", { className: "row" }, track.closed ? "closed " : "open ", twice(track.closed ? "Open" : "Close", `${track.closed ? "Open" : "Close"} ${track.title}`, () => act(`/api/owner/tracks/${track.name}`, { closed: !track.closed })))])));
    $("boards").replaceChildren(table(["Scorer", "Board", "Queued", "Running", "Scored", "Failed", "Actions"], value.boards.map((board) => [`${board.track_title}: ${board.label}`, make("a", { href: `/boards/${board.id}`, textContent: board.id }), ...["queued", "running", "scored", "failed"].map((state) => String(board.jobs[state])),
      board.retired ? "out of use" : make("span", { className: "row" }, twice("Rescore", `Rescore by this version's scorer: ${board.label}`, () => act(`/api/owner/boards/${board.id}/rescore`)), twice("Retire", `Retire ${board.label}`, () => act(`/api/owner/boards/${board.id}/retire`)))])));
    $("failed").replaceChildren(value.failed.length ? table(["System", "Reason", "When", "Action"], value.failed.map((job) => [make("a", { href: `/systems/${job.submission}`, textContent: job.system }), job.reason, when(job.ended), button("Again", `Score ${job.system} again`, () => act(`/api/owner/jobs/${job.job}/again`))])) : make("p", { textContent: "None." }));
    $("log").replaceChildren(logged(value.log));
    oldest = value.log.at(-1)?.id ?? null;
    $("new-account").onsubmit = (event) => {
      event.preventDefault();
      const name = $("account-name").value.trim();
      guarded(async () => { const answer = await ask("/api/owner/accounts", { method: "POST", json: { name, role: $("account-role").value } }); $("account-name").value = ""; await load(); shown(name, answer); });
    };
  };
  $("new-token").querySelector("button").addEventListener("click", () => navigator.clipboard?.writeText($("new-token").querySelector("code").textContent));
  $("older").addEventListener("click", () => guarded(async () => {
    if (!oldest) return;
    const { log } = await ask(`/api/owner/log?before=${oldest}`);
    if (!log.length) { $("older").disabled = true; return; }
    oldest = log.at(-1).id;
    $("log").append(logged(log));
  }));
  withToken(load);
}

({ submit: submitPage, mine: minePage, owner: ownerPage })[page]?.();
