// Microphones: lists them, opens one, and explains errors in plain words.

import { CallError } from "./server.js";

/** Constraints of the microphone. @param {string} device id of a chosen one, empty for the system's default */
const wanted = (device) => ({
  echoCancellation: true,
  noiseSuppression: true,
  autoGainControl: true,
  channelCount: 1,
  // `ideal`: the system's default replaces an unplugged device.
  ...(device && { deviceId: { ideal: device } }),
});

/** Opens the microphone. Throws a CallError with the reason in plain words. @param {string} device */
export async function openMicrophone(device) {
  if (!window.isSecureContext || !navigator.mediaDevices) {
    throw new CallError(
      "Browsers give the microphone only to pages on https:// or on this machine itself. " +
        "Open this page as http://127.0.0.1 with the server's port, or start the server with --lan or behind https.",
    );
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: wanted(device) });
  } catch (error) {
    throw new CallError(problem(error));
  }
}

/** @param {unknown} error */
function problem(error) {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  switch (name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The microphone was denied. Allow it for this page in the browser's address bar, then start again.";
    case "NotFoundError":
      return "No microphone was found. Plug one in or switch it on, then start again.";
    case "NotReadableError":
    case "AbortError":
      return "The microphone could not be opened: another program may be using it.";
    default:
      return `The microphone could not be opened (${message || name}).`;
  }
}

/**
 * Returns microphones and loudspeakers: {microphones, speakers}, each a list of {id, name}. Browsers list them only after permission
 * for a microphone, and some list no loudspeakers.
 */
export async function audioDevices() {
  const devices = (await navigator.mediaDevices?.enumerateDevices().catch(() => [])) ?? [];
  /** @param {MediaDeviceKind} kind */
  const named = (kind) =>
    devices
      .filter((device) => device.kind === kind && device.label && device.deviceId !== "default")
      .map(({ deviceId, label }) => ({ id: deviceId, name: label }));
  return { microphones: named("audioinput"), speakers: named("audiooutput") };
}

/** Calls `changed` whenever a device is plugged in or removed. @param {() => void} changed */
export function onDeviceChange(changed) {
  navigator.mediaDevices?.addEventListener("devicechange", changed);
}
