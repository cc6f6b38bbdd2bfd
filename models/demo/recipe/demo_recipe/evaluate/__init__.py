"""Asks a served model the held-out questions and judges its answers: `make eval-model`.

`gateway`     starts the gateway with a checkpoint, and knows how much processor time it used
`conditions`  the questions as sound: clean, with noise, over a telephone; recordings of people
`ask`         a client: one websocket session a conversation, push to talk
`ear`         an independent recogniser, in a process of its own
`words`       what counts as the same words, and as a right answer
`sound`       level, average spectrum, clicks
`table`       from judged answers to the table, the report and the model card
`__main__`    the order of it all

Needs the packages of tests/requirements.txt, espeak-ng and flite; no torch.
"""
