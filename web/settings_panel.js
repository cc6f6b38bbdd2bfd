// The form that shows the settings and changes them. A control with `data-setting="name"` is bound to the setting of that name.

import { audioDevices, onDeviceChange } from "./microphone.js";
import { $ } from "./view.js";

export class SettingsPanel {
  #settings;
  #controls;

  constructor(settings) {
    this.#settings = settings;
    this.#controls = [...$("settings").querySelectorAll("[data-setting]")];
    for (const control of this.#controls) {
      control.addEventListener("change", () => settings.set(control.dataset.setting, valueOf(control)));
      // Update the number beside a slider.
      if (control.type === "range") control.addEventListener("input", () => showNumber(control));
    }
    $("reset").addEventListener("click", () => settings.reset());
    settings.addEventListener("change", () => this.#show());
    onDeviceChange(() => this.#showDevices());
    this.#show();
  }

  /** Shows the model's capabilities and the devices. */
  async refresh({ voices = [], default_voice: standard = "", tools = true, transcription = false }) {
    fill($("voice-name"), voices.map((name) => ({ id: name, name })), standard ? `The model's default (${standard})` : "The model's default");
    $("functions").disabled = !tools;
    $("no-functions").hidden = tools;
    $("captions").hidden = !transcription;
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
      const value = this.#settings.get(control.dataset.setting);
      if (control.type === "checkbox") control.checked = value;
      else if (control.type === "radio") control.checked = control.value === value;
      else control.value = value;
      if (control.type === "range") showNumber(control);
    }
    const turns = this.#settings.get("turns");
    document.body.dataset.turns = turns;
    for (const part of $("settings").querySelectorAll("[data-turns]")) {
      part.hidden = !part.dataset.turns.split(" ").includes(turns);
    }
    if ("setSinkId" in HTMLMediaElement.prototype) $("voice").setSinkId(this.#settings.get("speaker")).catch(() => {});
  }
}

function valueOf(control) {
  if (control.type === "checkbox") return control.checked;
  return control.type === "range" ? Number(control.value) : control.value;
}

function showNumber(control) {
  control.nextElementSibling.textContent = `${control.value}${control.dataset.unit ?? ""}`;
}

/** Sets the options of a select: the standard one, then these; keeps the selection. */
function fill(select, choices, standard) {
  const { value } = select;
  const option = ({ id, name }) => new Option(name, id);
  select.replaceChildren(new Option(standard, ""), ...choices.map(option));
  select.value = choices.some(({ id }) => id === value) ? value : "";
}
