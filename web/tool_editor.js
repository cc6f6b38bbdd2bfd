// Editor of the user's own functions: name, description, parameters, and the fixed result that the model gets.

import { $ } from "./view.js";

/** @import { OwnTool } from "./functions.js" */
/** @import { Settings } from "./settings.js" */

/** Valid names, as in the Realtime API. */
const NAME = /^[\w-]{1,64}$/;
/** Largest number of functions. */
const MAX_TOOLS = 32;
/** Parameters of a new function. */
const PARAMETERS = '{\n  "type": "object",\n  "properties": {},\n  "required": []\n}';

export class ToolEditor {
  #settings;

  /** @param {Settings} settings */
  constructor(settings) {
    this.#settings = settings;
    $("tool-list").addEventListener("change", () => this.#show());
    $("tool-save").addEventListener("click", () => this.#save());
    $("tool-delete").addEventListener("click", () => this.#keep(this.#others(), ""));
    this.#fill("");
  }

  /** Functions besides the chosen one. */
  #others() {
    return this.#settings.ownTools().filter(({ name }) => name !== $("tool-list").value);
  }

  #save() {
    const name = $("tool-name").value.trim();
    const others = this.#others();
    let parameters;
    try {
      parameters = JSON.parse($("tool-parameters").value);
    } catch (error) {
      return problem(`The parameters are not JSON: ${error instanceof Error ? error.message : error}`);
    }
    if (!NAME.test(name)) return problem("A name has 1 to 64 letters, digits, _ or -.");
    if (others.some((tool) => tool.name === name)) return problem(`There is a function ${name} already.`);
    if (others.length >= MAX_TOOLS) return problem(`A session takes ${MAX_TOOLS} functions of your own at most.`);
    if (typeof parameters !== "object" || parameters === null) return problem("The parameters are a JSON Schema: an object.");
    this.#keep([...others, { name, description: $("tool-description").value, parameters, result: $("tool-result").value }], name);
  }

  /**
   * @param {OwnTool[]} tools
   * @param {string} chosen name
   */
  #keep(tools, chosen) {
    this.#settings.set("ownTools", JSON.stringify(tools));
    this.#fill(chosen);
    problem(chosen ? `The model may call ${chosen}.` : "");
  }

  /** @param {string} chosen name; empty for a new function */
  #fill(chosen) {
    const options = this.#settings.ownTools().map(({ name }) => new Option(name, name));
    $("tool-list").replaceChildren(new Option("New function", ""), ...options);
    $("tool-list").value = chosen;
    this.#show();
  }

  #show() {
    const tool = this.#settings.ownTools().find(({ name }) => name === $("tool-list").value);
    $("tool-name").value = tool?.name ?? "";
    $("tool-description").value = tool?.description ?? "";
    $("tool-parameters").value = tool ? JSON.stringify(tool.parameters, null, 2) : PARAMETERS;
    $("tool-result").value = tool?.result ?? "";
    $("tool-delete").disabled = !tool;
    problem("");
  }
}

/** @param {string} text */
function problem(text) {
  $("tool-problem").textContent = text;
}
