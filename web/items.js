// Contents of a conversation's items.

/** @import { ServerItem } from "./types/events.js" */

/** Returns the content of a message; none of other items. @param {ServerItem} item */
export function contentOf(item) {
  return "content" in item ? item.content : [];
}

/** Returns the transcript of a spoken message; empty if there is none. @param {ServerItem} item */
export function transcriptOf(item) {
  const [part] = contentOf(item);
  return (part && "transcript" in part && part.transcript) || "";
}
