// The admin's tag form: lint and the preview's node count below the definition, while somebody types.
// Without the API, the role or JavaScript the form works as ever. Text goes in as text, never as HTML.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const definition = document.getElementById("id_definition");
  if (!definition || !definition.dataset.lintUrl) return;
  const namespaces = document.getElementById("id_namespaces");
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  // Each open form is a client of its own: its newer preview ends its older.
  const client = `admin ${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  const PAUSE = 400; // ms without a key, then it asks
  const WAIT = 10; // s that the server may hold a preview
  const box = element("div", "tagmill-lint");
  const warnings = element("div");
  const count = element("p", "tagmill-count");
  box.setAttribute("aria-live", "polite");
  box.append(warnings, count);
  // Below the field and its help, not beside them.
  (definition.closest(".flex-container") || definition).parentElement.append(box);
  let timer = 0;
  let asking = new AbortController();
  let preview = null;

  function element(name, className = "", text = "") {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.textContent = text;
    return made;
  }

  async function ask(method, url, { body, prefer, signal, keepalive = false } = {}) {
    const headers = { "X-CSRFToken": token, Accept: "application/json" };
    if (body) headers["Content-Type"] = "application/json";
    if (prefer) headers.Prefer = prefer;
    const options = { method, headers, signal, keepalive, credentials: "same-origin" };
    if (body) options.body = JSON.stringify(body);
    const answer = await fetch(url, options);
    return { status: answer.status, body: answer.status === 204 ? null : await answer.json() };
  }

  function asked() {
    let prefixes = {};
    try {
      prefixes = JSON.parse((namespaces && namespaces.value) || "{}") || {};
    } catch {
      return null; // the form says so itself
    }
    return { definition: definition.value, namespaces: prefixes };
  }

  function showProblem(problem) {
    const shown = element("div", "tagmill-error");
    shown.append(element("span", "", `This is no definition: ${problem.detail}`));
    if (problem.caret) {
      // The detail is said already: the caret is enough.
      shown.append(element("pre", "", problem.caret.replace(/\^ [^\n]*$/, "^")));
    }
    warnings.replaceChildren(shown);
  }

  function marked(text, warning) {
    // The line of the warning, with what it is about marked. Columns count characters, as here.
    const letters = [...text];
    const from = letters.lastIndexOf("\n", warning.column - 2) + 1;
    const newline = letters.indexOf("\n", warning.column - 1);
    const to = newline < 0 ? letters.length : newline;
    const end = Math.min(warning.end_column, to);
    const line = element("pre");
    line.append(
      letters.slice(from, warning.column - 1).join(""),
      element("mark", "", letters.slice(warning.column - 1, end).join("")),
      letters.slice(end, to).join(""),
    );
    return line;
  }

  function showWarnings(text, found) {
    warnings.replaceChildren(
      ...found.map((warning) => {
        const shown = element("div", "tagmill-warning");
        shown.append(marked(text, warning), element("span", "", warning.message));
        if (warning.rewrite !== null) {
          const use = element("button", "tagmill-rewrite");
          use.type = "button";
          use.title = "Write this instead";
          use.append("use ", element("code", "", warning.rewrite));
          use.addEventListener("click", () => {
            definition.value = warning.rewrite;
            definition.focus();
            look(true);
          });
          shown.append(use);
        }
        return shown;
      }),
    );
  }

  function showCount(found) {
    const number = (value) => value.toLocaleString("en");
    if (found.state === "failed") {
      count.textContent = `The preview failed: ${found.failure}`;
      return;
    }
    // Nothing is known yet: the count is null.
    const nodes =
      found.node_count === null
        ? "nothing known"
        : `${number(found.node_count)} node${found.node_count === 1 ? "" : "s"}`;
    if (found.state === "evaluating") {
      const { partitions, pending } = found.progress;
      count.textContent = `Evaluating: ${nodes} so far, ${partitions - pending} of ${partitions} partitions`;
      return;
    }
    const change = found.compare_to
      ? `: ${number(found.added)} more and ${number(found.removed)} fewer than ${found.compare_to} has now`
      : "";
    count.textContent = `Would match ${nodes} of ${number(found.total)}${change}.`;
  }

  async function lint(given, signal) {
    const { status, body } = await ask("POST", definition.dataset.lintUrl, { body: given, signal });
    if (signal.aborted) return false;
    if (status === 400 || status === 413) showProblem(body);
    else showWarnings(given.definition, status === 200 ? body.warnings : []);
    return status === 200;
  }

  async function countNodes(given, signal) {
    const url = definition.dataset.previewUrl;
    const tag = definition.dataset.tag || null;
    const prefer = `wait=${WAIT}`;
    const body = { ...given, client, compare_to: tag };
    // Never held: a preview that is under way shows its progress.
    let answer = await ask("POST", url, { body, signal });
    while (!signal.aborted && (answer.status === 200 || answer.status === 202)) {
      preview = `${url.replace(/\/$/, "")}/${answer.body.uuid}`;
      showCount(answer.body);
      if (answer.status === 200) return;
      answer = await ask("GET", preview, { prefer, signal });
      // A server that does not hold it answers at once.
      if (answer.status === 202) await new Promise((wake) => setTimeout(wake, PAUSE));
    }
    if (!signal.aborted) count.textContent = "";
  }

  async function look(counts) {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const given = asked();
    if (given === null) return;
    if (!given.definition.trim()) {
      warnings.replaceChildren();
      count.textContent = "";
      return;
    }
    try {
      const isDefinition = await lint(given, signal);
      if (!isDefinition) count.textContent = "";
      else if (counts) await countNodes(given, signal);
    } catch {
      // Aborted by a newer one, or the server is away: saving will tell.
    }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(() => look(true), PAUSE);
  }

  definition.addEventListener("input", soon);
  if (namespaces) namespaces.addEventListener("input", soon);
  window.addEventListener("pagehide", () => {
    asking.abort();
    if (preview) ask("DELETE", preview, { keepalive: true }).catch(() => {});
  });
  look(false);
});
