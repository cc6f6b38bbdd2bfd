// Records offers of Chromium: node record_offers.mjs FOLDER. gateway/sdp/tests/offers/README.md says which.

import { writeFile } from "node:fs/promises";
import { MICROPHONE, launch, withPageOf } from "./browser.mjs";

/** @typedef {{ order: string[], direction?: RTCRtpTransceiverDirection, policy?: RTCBundlePolicy }} Variant */

/** Sections of each offer, in the order in which the page asks for them. @type {Record<string, Variant>} */
const VARIANTS = {
  chromium: { order: ["audio", "channel"] },
  "chromium-channel-first": { order: ["channel", "audio"] },
  "chromium-video-first": { order: ["video", "audio", "channel"] },
  "chromium-max-bundle": { order: ["video", "audio", "channel"], policy: "max-bundle" },
  "chromium-two-tracks": { order: ["audio", "audio", "channel"] },
  "chromium-sendonly": { order: ["audio", "channel"], direction: "sendonly" },
  "chromium-recvonly": { order: ["audio", "channel"], direction: "recvonly" },
};

/** Runs in the page: writes an offer with all candidates. @param {Variant} variant */
async function offer({ order, direction = "sendrecv", policy = "balanced" }) {
  const pc = new RTCPeerConnection({ bundlePolicy: policy });
  const [track] = (await navigator.mediaDevices.getUserMedia({ audio: true })).getAudioTracks();
  for (const section of order) {
    if (section === "channel") pc.createDataChannel("oai-events");
    else if (section === "video") pc.addTransceiver("video");
    else pc.addTransceiver(direction === "recvonly" ? "audio" : track.clone(), { direction });
  }
  await pc.setLocalDescription();
  if (pc.iceGatheringState !== "complete") {
    await new Promise((done) => {
      pc.onicegatheringstatechange = () => pc.iceGatheringState === "complete" && done(undefined);
    });
  }
  const sdp = pc.localDescription?.sdp ?? "";
  pc.close();
  return sdp;
}

/**
 * Runs in the page: writes the offer of a connection whose first section, a video, was stopped after an answer, and that
 * restarts ICE.
 */
async function stopped() {
  const [pc, other] = [new RTCPeerConnection(), new RTCPeerConnection()];
  const [track] = (await navigator.mediaDevices.getUserMedia({ audio: true })).getAudioTracks();
  const video = pc.addTransceiver("video");
  pc.addTrack(track);
  pc.createDataChannel("oai-events");
  await pc.setLocalDescription();
  await other.setRemoteDescription(/** @type {RTCSessionDescription} */ (pc.localDescription));
  await other.setLocalDescription();
  await pc.setRemoteDescription(/** @type {RTCSessionDescription} */ (other.localDescription));
  video.stop();
  pc.restartIce();
  const { sdp } = await pc.createOffer();
  pc.close();
  other.close();
  return sdp ?? "";
}

const [folder] = process.argv.slice(2);
const browser = await launch(MICROPHONE.beeps);
console.log(`Chromium ${browser.version()}`);
try {
  await withPageOf(browser, async (page) => {
    await page.route("http://localhost/", (route) => route.fulfill({ body: "<!doctype html>", contentType: "text/html" }));
    await page.goto("http://localhost/");
    for (const [name, variant] of Object.entries(VARIANTS)) {
      await writeFile(`${folder}/${name}.sdp`, await page.evaluate(offer, variant));
    }
    await writeFile(`${folder}/chromium-stopped-video-restart.sdp`, await page.evaluate(stopped));
  });
} finally {
  await browser.close();
}
