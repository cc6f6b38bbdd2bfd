// What was said so far, as text: what a new call is told when the old one was lost. The server itself forgets with the call.

/** Stands for a question that nobody wrote down: most models hear without writing. */
const UNWRITTEN = "(A spoken question; its words were not kept.)";
/** A conversation that is longer than this loses its beginning. */
const MOST_TURNS = 100;

export class Memory {
  /** { question: what the caller said, if it was written down, answer: what was answered so far } */
  #turns = [];
  /** Response id -> its turn. */
  #answers = new Map();

  /** The caller's turn ended. */
  asked() {
    this.#turns.push({ question: null, answer: "" });
    if (this.#turns.length > MOST_TURNS) this.#turns.shift();
  }

  /** What the caller said in the last turn. */
  heard(text) {
    const turn = this.#turns.at(-1);
    if (turn) turn.question = text;
  }

  /** An answer begins: to the last turn. */
  answers(response) {
    const turn = this.#turns.at(-1);
    if (turn) this.#answers.set(response, turn);
  }

  /** More of an answer. */
  add(response, text) {
    const turn = this.#answers.get(response);
    if (turn) turn.answer += text;
  }

  /** The client events that tell a new call all of it. Answers of the old call are not continued. */
  events() {
    this.#answers.clear();
    const message = (role, type, text) => ({
      type: "conversation.item.create",
      item: { type: "message", role, content: [{ type, text }] },
    });
    return this.#turns
      .filter(({ answer }) => answer)
      .flatMap(({ question, answer }) => [
        message("user", "input_text", question ?? UNWRITTEN),
        message("assistant", "output_text", answer),
      ]);
  }
}
