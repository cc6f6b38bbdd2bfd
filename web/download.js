// Downloads: the transcript as text, the recording of both sides, and other files of the page.

import { $ } from "./view.js";

/** @import { Recorder } from "./recorder.js" */
/** @import { Transcript } from "./transcript.js" */

/**
 * Makes the buttons work. Call `offer()` whenever there may be more or less to take.
 *
 * @param {Transcript} transcript
 * @param {() => Recorder | null} recorder returns the sound's recorder
 */
export function offerDownloads(transcript, recorder) {
  $("save-transcript").addEventListener("click", () => {
    save(new Blob([transcript.text()], { type: "text/plain;charset=utf-8" }), "txt");
  });
  $("save-sound").addEventListener("click", async () => {
    const sound = await recorder()?.sound();
    if (sound) save(sound.blob, sound.ending);
  });
  return {
    offer() {
      $("tools").hidden = transcript.turns.length === 0;
      $("save-sound").disabled = !recorder();
    },
  };
}

/**
 * Downloads a file.
 *
 * @param {Blob} blob
 * @param {string} ending extension of the file's name
 */
export function save(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  // 2026-11-22T14-05-00, in UTC.
  link.download = `repartee-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${ending}`;
  link.click();
  // The download has begun once the click was dealt with.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
