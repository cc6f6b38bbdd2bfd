// The form that shows the settings and changes them. A control with `data-setting="name"` is bound to the setting of that name.

import { audioDevices, onDeviceChange } from "./microphone.js";
import { $ } from "./view.js";

/** @import { ModelFacts } from "./server.js" */
/** @import { SettingName, SettingValues, Settings } from "./settings.js" */

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Control */
/** @typedef {{ id: string, name: string }} Choice */

export class SettingsPanel {
  #settings;
  #controls;

  /** @param {Settings} settings */
  constructor(settings) {
    this.#settings = settings;
    /** @type {NodeListOf<Control>} */
    const controls = $("settings").querySelectorAll("[data-setting]");
    this.#controls = [...controls];
    for (const control of this.#controls) {
      control.addEventListener("change", () => settings.set(settingOf(control), valueOf(control)));
      // Update the number beside a slider.
      if (control.type === "range") control.addEventListener("input", () => showNumber(control));
    }
    $("reset").addEventListener("click", () => settings.reset());
    // Enter in a field would load the page again.
    $("settings").querySelector("form")?.addEventListener("submit", (event) => event.preventDefault());
    settings.addEventListener("change", () => this.#show());
    onDeviceChange(() => this.#showDevices());
    this.#show();
  }

  /** Shows the model's capabilities and the devices. @param {ModelFacts} facts */
  async refresh(facts) {
    const { voices = [], default_voice: standard = "" } = facts;
    fill($("voice-name"), voices.map((name) => ({ id: name, name })), standard ? `The model's default (${standard})` : "The model's default");
    mark(facts);
    await this.#showDevices();
    this.#show();
  }

  async #showDevices() {
    const { microphones, speakers } = await audioDevices();
    fill($("microphone"), microphones, "System default");
    fill($("speaker"), speakers, "System default");
    // Some browsers do not let a page choose the loudspeaker.
    $("speaker").disabled = !("setSinkId" in HTMLMediaElement.prototype);
    this.#show();
  }

  #show() {
    for (const control of this.#controls) {
      const value = this.#settings.get(settingOf(control));
      if (isInput(control, "checkbox")) control.checked = value === true;
      else if (isInput(control, "radio")) control.checked = control.value === value;
      else control.value = String(value);
      if (control.type === "range") showNumber(control);
    }
    const turns = this.#settings.get("turns");
    document.body.dataset.turns = turns;
    /** @type {NodeListOf<HTMLElement>} */
    const parts = $("settings").querySelectorAll("[data-turns]");
    for (const part of parts) {
      part.hidden = !part.dataset.turns?.split(" ").includes(turns);
    }
    if (!("setSinkId" in HTMLMediaElement.prototype)) return;
    for (const element of [$("voice"), $("reader")]) element.setSinkId(this.#settings.get("speaker")).catch(() => {});
  }
}

/**
 * Marks what the model ignores: an element with `data-needs` is disabled without that capability, and one with `data-lacks` says so (if it
 * has the one of `data-if`). A capability that the server does not tell counts as present.
 *
 * @param {ModelFacts} facts
 */
function mark(facts) {
  /** @param {string | undefined} name */
  const has = (name) => !name || (/** @type {Record<string, unknown>} */ (facts)[name] ?? true) === true;
  /** @type {NodeListOf<HTMLElement & { disabled: boolean }>} */
  const controls = document.querySelectorAll("[data-needs]");
  for (const control of controls) control.disabled = !has(control.dataset.needs);
  /** @type {NodeListOf<HTMLElement>} */
  const notes = document.querySelectorAll("[data-lacks]");
  for (const note of notes) note.hidden = has(note.dataset.lacks) || !has(note.dataset.if);
}

/**
 * @param {Control} control
 * @param {"checkbox" | "radio"} type
 * @returns {control is HTMLInputElement}
 */
function isInput(control, type) {
  return control.type === type;
}

/** @param {Control} control */
function settingOf(control) {
  return /** @type {SettingName} */ (control.dataset.setting);
}

/** Returns the chosen value; the page's choices are values of the setting. @param {Control} control */
function valueOf(control) {
  if (isInput(control, "checkbox")) return control.checked;
  const value = control.type === "range" ? Number(control.value) : control.value;
  return /** @type {SettingValues[SettingName]} */ (value);
}

/** @param {Control} control a slider, before the element of its number */
function showNumber(control) {
  const { nextElementSibling: number } = control;
  if (number) number.textContent = `${control.value}${control.dataset.unit ?? ""}`;
}

/**
 * Sets the options of a select: the standard one, then these; keeps the selection.
 *
 * @param {HTMLSelectElement} select
 * @param {Choice[]} choices
 * @param {string} standard
 */
function fill(select, choices, standard) {
  const { value } = select;
  /** @param {Choice} choice */
  const option = ({ id, name }) => new Option(name, id);
  select.replaceChildren(new Option(standard, ""), ...choices.map(option));
  select.value = choices.some(({ id }) => id === value) ? value : "";
}
