// Dialogs that change an experiment or a trial: each shows the command that does the same, and errors at their fields.

import { say, sendJson } from "./core.js";

const quoted = (text) => (/^[\w.,:=/@%+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

const FLAGS = { maxTrialCount: "--max-trials", parallelTrialCount: "--parallel", maxFailedTrialCount: "--max-failed" };

/** Make the dialogs of an experiment or a trial work; `done` is called after each change. */
export function actions(root, { namespace, name, done }) {
  const address = `api/v1/namespaces/${namespace}/experiments/${name}`;
  const katib = namespace === "default" ? "" : ` -n ${namespace}`;
  const kubectl = (verb, rest = "") => `kubectl -n ${namespace} ${verb} experiments.kubeflow.org ${name}${rest}`;
  const edit = (changes) => sendJson("PATCH", address, changes);
  const stopped = "katib.kubeflow.org/stopped";

  const pausing = (suspended, said) => ({
    katib: () => `katib ${suspended ? "pause" : "resume"} ${name}${katib}`,
    kubectl: () => {
      const { job, suspend } = root.dataset;
      const patch = suspend.split(".").reduceRight((value, field) => ({ [field]: value }), suspended);
      return `kubectl -n ${namespace} patch ${job} ${name} --type merge -p '${JSON.stringify(patch)}'`;
    },
    send: () => sendJson("PATCH", `api/v1/namespaces/${namespace}/trials/${name}`, { suspended }),
    said,
  });

  /** What each form does: its body, the commands that do the same, the request, and what is said after it. */
  const kinds = {
    budget: {
      read: (form) => Object.fromEntries([...form.elements]
        .filter((field) => field.name && field.value !== field.dataset.was)
        .map((field) => [field.name, field.value === "" ? null : Number(field.value)])),
      katib: (body) => `katib budget ${name}${Object.entries(body).map(([field, value]) => ` ${FLAGS[field]} ${value ?? "none"}`).join("")}${katib}`,
      kubectl: (body) => kubectl("patch", ` --type merge -p '${JSON.stringify({ spec: body })}'`),
      send: edit,
      check: (body) => (Object.keys(body).length ? "" : "Nothing is changed yet."),
      said: "Changed.",
    },
    stop: {
      katib: () => `katib stop ${name}${katib}`,
      kubectl: () => kubectl("annotate", ` ${stopped}=true`),
      send: () => edit({ stopped: true }),
      said: "Stopped: no further trial starts.",
    },
    resume: {
      katib: () => `katib resume ${name}${katib}`,
      kubectl: () => kubectl("annotate", ` ${stopped}-`),
      send: () => sendJson("POST", `${address}/pause`, { paused: false }),
      said: "Resumed.",
    },
    pause: {
      katib: () => `katib pause ${name}${katib}`,
      send: () => sendJson("POST", `${address}/pause`, { paused: true }),
      said: "Paused, with the trials that ran.",
    },
    add: {
      read: (form) => [...form.elements].filter((field) => field.name && field.value !== "")
        .map((field) => ({ name: field.name, value: field.value })),
      katib: (body) => `katib trial add ${name} ${body.map((one) => quoted(`${one.name}=${one.value}`)).join(" ")}${katib}`,
      send: (body) => sendJson("POST", `${address}/trials`, { parameterAssignments: body }),
      field: (path, body) => body[Number(/\[(\d+)\]/.exec(path)?.[1] ?? -1)]?.name,
      said: "The trial runs next.",
    },
    confirm: {
      read: (form) => ({ top: Number(form.elements.top.value), repeats: Number(form.elements.repeats.value) }),
      katib: (body) => `katib confirm ${name} --top ${body.top} --repeats ${body.repeats}${katib}`,
      send: async (body) => {
        const { confirmedBy } = await sendJson("POST", `${address}/confirmation`, body);
        location.href = new URL(`experiments/${namespace}/${confirmedBy}`, document.baseURI);
      },
    },
    "pause-trial": pausing(true, "Paused: its pods end."),
    "resume-trial": pausing(false, "Resumed."),
    delete: {
      katib: () => `katib delete ${name}${katib}`,
      kubectl: () => kubectl("delete"),
      send: () => sendJson("DELETE", address),
      after: () => { location.href = new URL("./", document.baseURI); },
    },
  };

  const dialogOf = (form) => form.closest("dialog");
  const kindOf = (form) => kinds[form.dataset.action];
  const bodyOf = (form) => kindOf(form).read?.(form);

  function showCommands(form) {
    const kind = kindOf(form);
    for (const shown of form.querySelectorAll("[data-command]")) {
      const make = kind[shown.dataset.command];
      shown.hidden = !make;
      shown.textContent = make ? make(bodyOf(form)) : "";
    }
  }

  function showErrors(form, errors) {
    for (const shown of form.querySelectorAll("[data-error]")) {
      shown.textContent = errors.get(shown.dataset.error) ?? "";
      const field = shown.dataset.error && form.elements.namedItem(shown.dataset.error);
      if (field) field.toggleAttribute("aria-invalid", errors.has(shown.dataset.error));
    }
    form.querySelector("[aria-invalid]")?.focus();
  }

  /** The sentences of a refusal by the field that each belongs to; those of no field stand above the buttons. */
  function errorsOf(error, form, body) {
    const found = new Map();
    const add = (field, text) => found.set(field, [found.get(field), text].filter(Boolean).join(" "));
    const names = [...form.elements].map((field) => field.name).filter(Boolean);
    for (const rule of error.problem?.errors ?? []) {
      const field = kindOf(form).field?.(rule.path, body) ?? names.find((one) => rule.path.split(/[.[\]]/).includes(one));
      add(field ?? names.find((one) => rule.cause.startsWith(one)) ?? "", `${field ? "" : `${rule.path}: `}${rule.cause}; ${rule.remedy}`);
    }
    if (!found.size) add("", error.message);
    return found;
  }

  root.addEventListener("click", (event) => {
    const opens = event.target.closest("[data-open]")?.dataset.open;
    if (opens) {
      const form = document.getElementById(opens).querySelector("form");
      showErrors(form, new Map());
      showCommands(form);
      dialogOf(form).showModal();
    }
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
  });
  root.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-action]");
    if (form) showCommands(form);
  });
  root.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-action]");
    if (!form) return;
    event.preventDefault();
    const kind = kindOf(form);
    const body = bodyOf(form);
    const idle = kind.check?.(body);
    showErrors(form, new Map(idle ? [["", idle]] : []));
    if (idle) return;
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    try {
      await kind.send(body);
      for (const field of form.elements) if ("was" in field.dataset) field.dataset.was = field.value;
      dialogOf(form).close();
      if (kind.said) say(kind.said);
      (kind.after ?? done)();
    } catch (error) {
      showErrors(form, errorsOf(error, form, body));
    } finally {
      button.disabled = false;
    }
  });
}
