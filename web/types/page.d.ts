// Types that JSDoc cannot declare. Only for checks: the server does not serve this file.

/** Constructor of an EventTarget that dispatches these events: type -> detail of its CustomEvent; undefined for none. */
export type EventTargetOf<Details> = new () => TypedEventTarget<Details>;

interface TypedEventTarget<Details> extends Omit<EventTarget, "addEventListener"> {
  addEventListener<Type extends keyof Details & string>(
    type: Type,
    listener: (event: CustomEvent<Details[Type]>) => void,
    options?: AddEventListenerOptions,
  ): void;
}
