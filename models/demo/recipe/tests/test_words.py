"""The judge's rule for the same words."""

import json
import unittest
from pathlib import Path

from demo_recipe.domain import Turn
from demo_recipe.domain.words import number
from demo_recipe.evaluate import words

FROZEN = Path(__file__).parents[2] / "held-out/words.json"


def turn(answer: str, key: str) -> Turn:
    return Turn("", "", answer, tuple(key.split()))


class Words(unittest.TestCase):
    def test_digits_and_words_are_the_same(self) -> None:
        for heard in ("Fifty-one.", "51", "fifty one", "51."):
            self.assertEqual(words.words(heard), ["fifty", "one"])
        self.assertEqual(words.words("1, 2, 3"), ["one", "two", "three"])
        for n in range(145):
            self.assertEqual(words.words(f"It is {n}."), ["it", "is", *number(n).split()])

    def test_digits_without_commas_are_counted_out_where_no_hundred_is_due(self) -> None:
        self.assertTrue(words.right(turn("Seven, eight, nine.", "seven eight nine"), "789."))
        self.assertTrue(
            words.right(
                turn("Twelve times twelve is one hundred forty four.", "one hundred forty four"), "12 times 12 is 144."
            )
        )

    def test_signs_are_words(self) -> None:
        self.assertEqual(words.words("10 + 5 = 15"), words.words("Ten plus five is fifteen."))
        self.assertEqual(words.words("3x4 is 12"), words.words("Three times four is twelve."))

    def test_a_hyphen_is_minus_only_where_minus_is_due(self) -> None:
        self.assertEqual(words.words("10-3 is 7", ["minus"]), ["ten", "minus", "three", "is", "seven"])
        self.assertEqual(words.words("3-4-5"), ["three", "four", "five"])

    def test_spelled_letters_are_letters_however_they_are_written(self) -> None:
        cat = turn("Cat is spelled C, A, T.", "c a t")
        for heard in (
            "Cat is spelled C-A-T.",
            "cat is spelled c a t",
            "Cat is spelled CAT.",
            "Cat is spelled C.A.T.",
            "Cat is spelled see a tea.",
        ):
            self.assertTrue(words.right(cat, heard), heard)
        for heard in ("Cat is spelled C-A-D.", "Cat is spelled cat.", "Cat is spelled C-A-T-S."):
            self.assertFalse(words.right(cat, heard), heard)

    def test_accents_and_apostrophes_do_not_matter(self) -> None:
        self.assertEqual(words.words("Brasília. Anna’s"), ["brasilia", "annas"])

    def test_words_that_sound_alike_count_only_where_a_number_is_due(self) -> None:
        self.assertTrue(words.right(turn("One plus one is two.", "two"), "One plus one is too."))
        self.assertTrue(words.right(turn("One, two, three, four.", "one two three four"), "Won, to, three, for."))
        self.assertEqual(words.errors("Nice to meet you.", "Nice two meet you.").wrong, 1)

    def test_contractions_are_their_words(self) -> None:
        self.assertEqual(
            words.words("I'm sure it's fine, we can't stop"), "i am sure it is fine we can not stop".split()
        )
        self.assertEqual(words.words("They’ll say you don’t"), "they will say you do not".split())
        # A possessive is none.
        self.assertEqual(words.words("My sister's hat"), ["my", "sisters", "hat"])

    def test_run_together_numbers_are_read_as_due(self) -> None:
        due = "Nine, ten, eleven, twelve, thirteen."
        for heard in ("910111213", "9, 10, 11, 12, 13", "9 1011 1213", "91,011 1213"):
            self.assertEqual(words.errors(due, heard).wrong, 0, heard)
        for heard in ("910111214", "9101112", "9 10 11 12 30"):
            self.assertGreater(words.errors(due, heard).wrong, 0, heard)
        # What is not due is not made up: a long number is its digits.
        self.assertEqual(words.words("1314", ["seven", "eight"]), "one three one four".split())

    def test_one_word_or_two_as_due(self) -> None:
        self.assertEqual(words.words("good bye now", ["goodbye"]), ["goodbye", "now"])
        self.assertEqual(words.words("everyday", ["every", "day"]), ["every", "day"])
        self.assertEqual(words.words("good bye", ["good", "bye"]), ["good", "bye"])
        self.assertEqual(words.words("c at", ["cat", "c", "a", "t"]), ["c", "at"])

    def test_the_rule_is_frozen(self) -> None:
        for due, heard, wrong in json.loads(FROZEN.read_text()):
            self.assertEqual(words.errors(due, heard).wrong, wrong, (due, heard))


if __name__ == "__main__":
    unittest.main()
