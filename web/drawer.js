// A panel beside the page, or over a narrow page.

/** Media query: the panel fits beside the page. */
const BESIDE = matchMedia("(min-width: 1080px)");

export class Drawer {
  #dialog;
  #opener;
  /** @type {Drawer | null} */
  static #open = null;

  /**
   * @param {HTMLDialogElement} dialog has one button `.close`
   * @param {HTMLButtonElement} opener opens and closes it
   */
  constructor(dialog, opener) {
    this.#dialog = dialog;
    this.#opener = opener;
    opener.addEventListener("click", () => (dialog.open ? this.#close() : this.#show()));
    dialog.querySelector(".close")?.addEventListener("click", () => this.#close());
    dialog.addEventListener("close", () => this.#closed());
    dialog.addEventListener("keydown", (event) => {
      // A modal one closes by itself.
      if (event.key === "Escape" && !dialog.matches(":modal")) this.#close();
    });
    // A tap beside a modal one is a tap on its backdrop, which belongs to the dialog itself.
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog && dialog.matches(":modal")) this.#close();
    });
  }

  #show() {
    if (Drawer.#open) Drawer.#open.#close();
    Drawer.#open = this;
    if (BESIDE.matches) this.#dialog.show();
    else this.#dialog.showModal();
    document.body.classList.toggle("beside", BESIDE.matches);
    this.#opener.setAttribute("aria-expanded", "true");
    this.#dialog.dispatchEvent(new Event("shown"));
  }

  #close() {
    this.#dialog.close();
    this.#opener.focus();
  }

  #closed() {
    if (Drawer.#open === this) Drawer.#open = null;
    document.body.classList.toggle("beside", Drawer.#open !== null);
    this.#opener.setAttribute("aria-expanded", "false");
  }
}
