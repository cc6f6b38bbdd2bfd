// The API key, if the server needs one: typed in, or in the page's address after `#key=`, which browsers never send and
// which this module removes at once. Kept as long as this tab is open.

const NAME = "repartee.key";

function stored() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    // Storage can be switched off: then the key lasts until the page is closed.
    return null;
  }
}

/** @type {string | null} */
let key = stored();

const brought = new URLSearchParams(location.hash.slice(1)).get("key");
if (brought) {
  remember(brought);
  history.replaceState(null, "", location.pathname + location.search);
}

/** Keeps the key. @param {string} text */
export function remember(text) {
  key = text;
  try {
    sessionStorage.setItem(NAME, text);
  } catch {
    // See above.
  }
}

/** Returns the headers with the key, if there is one. @returns {Record<string, string>} */
export function authorization() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Returns the subprotocols of a websocket, with the key if there is one: a page cannot set the headers. */
export function protocols() {
  return key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"];
}
