// Globals of gateway/examples/page.html, for its check only.

import type { ServerEvent as WireEvent } from "../../web/types/events.js";

declare global {
  /** Event of the server, as docs/realtime.md lists them. */
  type ServerEvent = WireEvent;

  interface Document {
    // The page has these elements.
    querySelector(selectors: "audio"): HTMLAudioElement;
    querySelector(selectors: "button"): HTMLButtonElement;
    querySelector(selectors: "#answer"): HTMLParagraphElement;
  }
}
