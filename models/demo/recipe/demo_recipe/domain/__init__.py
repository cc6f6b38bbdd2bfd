"""The domain of the demo model: all that it is taught to talk about.

`words`      the closed lists: numbers, countries, names, the vocabulary of repeated sentences
`topics`     one function a topic: a random turn with its question, its answer and the words that decide it
`unknown`    questions outside the domain, which are met with "I don't know"
`talk`       whole conversations: single turns, follow-ups, things to remember
`dictation`  what means nothing, to be written down

An answer is a function of the conversation: no two answers are right for one question, so that greedy decoding can be
judged.
"""

from .dictation import dictation
from .talk import Conversation, conversation, conversations, practice
from .topics import Turn

__all__ = ["Conversation", "Turn", "conversation", "conversations", "dictation", "practice"]
