"""The judged turns: what callers say, each a line of pieces with the kind of the pause between them.

`text |kind| text |kind| text`. Written before any training, and never generated: training has other sentences
(`models/turns/recipe`).
"""

TURNS = """
I wanted to ask |hesitation| um, |hesitation| whether the museum takes cards.
The train I took was the |hesitation| uh, |hesitation| the one at twenty past six.
Could I speak with |hesitation| the person who signs the contracts?
We would need it by |hesitation| let's say the end of the month.
My brother's birthday is on |hesitation| hmm, |hesitation| I believe it is a Thursday.
Please write that the delivery was |hesitation| late and half of it was wet.
Is there any way to |hesitation| get my deposit back?
I'm trying to remember |hesitation| what the other nurse told me.
He asked for a |hesitation| er, |hesitation| a copy of the lease.
So the thing is |hesitation| I can't really walk that far.
It is the house with the |hesitation| with the yellow gate.
You know what, |hesitation| just put me on the waiting list.
There is a leak under the |hesitation| under the kitchen sink, |clause| and it gets worse every hour.
I was going to say |hesitation| that we might be late.
When the parcel comes, |clause| could you leave it with the neighbours?
If the doctor is free this morning, |clause| I'd like to come in at ten.
We drove all night, |clause| because the ferry was cancelled.
As far as I can see, |clause| the second bill has not been paid.
Once the water boils, |clause| turn down the heat, |clause| and wait for four minutes.
Even though she was tired, |clause| she finished the whole report, |clause| which surprised us.
By the way, |clause| do you sell stamps?
The kids can stay here, |clause| but the dog has to go outside.
In that case, |clause| let us meet at the fountain.
For lunch we'll have soup, |list| grilled fish, |list| a salad, |list| and lemon cake.
Pack two shirts, |list| a raincoat, |list| and the grey shoes.
I've been to Lisbon, |list| Athens, |list| Warsaw, |list| and Rome.
He plays the violin, |list| the trumpet, |list| and a bit of guitar.
Our guests are Margaret, |list| the Hendersons, |list| and two cousins from Wales.
The numbers were eleven, |number| twenty six, |number| thirty nine, |number| and forty.
My phone is five five two, |number| seven one eight, |number| oh nine three four.
Booking six one, |number| four four, |number| eight seven, |number| two.
The gate code is nine nine |number| three one |number| zero five.
It costs one hundred |number| and eighty |number| four dollars.
The account ends in seven seven, |number| three, |number| six.
My surname is Whitlock, |spelled| W H I, |spelled| T L, |spelled| O C K.
The reference is K, |spelled| R, |spelled| zero, |spelled| J, |spelled| V.
It's spelled B R, |spelled| A N, |spelled| D T.
That's M as in mother, |spelled| E, |spelled| L as in lion.
Send it to G, |spelled| dot, |spelled| Ferrari |spelled| at work dot com.
Yes. |sentence| We got the letter last week. |sentence| It had no stamp on it.
Thanks for calling back. |sentence| I have one more question.
""".strip().splitlines()

# Whole turns without an inner pause, many of them short.
WHOLE = """
How late is the pharmacy open?
No, that won't be necessary.
My flight lands at noon.
The other side, please.
Would you mind closing the window?
Fine by me.
He is my grandfather.
Which platform is it?
Not today.
I'd rather have the soup.
Somebody took my seat.
Does it come with a guarantee?
""".strip().splitlines()
