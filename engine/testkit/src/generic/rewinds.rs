//! An edited history equals a fresh session with the resulting history.

use repartee_engine_api::{
    Command, Event, InsertAt, MessageContent, Respond, ResponseInput, Role, SessionError, SessionHandle,
};

use super::{Bed, INSTRUCTIONS, Subject, assert_same, config, respond};
use crate::driven::{Response, submit};

/// Request of a response to `item` alone, whatever else the history holds.
fn to(item: u64, number: u64) -> Respond {
    Respond { input: Some(vec![ResponseInput::Item(item)]), ..respond(number) }
}

/// Response to a next turn.
fn next<S: Subject>(bed: &mut Bed<'_, S>, session: &SessionHandle) -> Response {
    bed.input(session, 2, 20);
    bed.respond(session, respond(9))
}

/// A truncated response equals one that was never longer.
pub fn truncate_equals_a_shorter_response<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    for tokens in [1, 3, 6] {
        for part in [false, true] {
            let spoken = |bed: &mut Bed<'_, S>, tokens| {
                let session = bed.engine.open();
                bed.input(&session, 0, 0);
                let response = bed.respond(&session, Respond { max_tokens: Some(tokens), ..respond(0) });
                // The response after it has read the whole text; it is deleted.
                bed.input(&session, 1, 1);
                bed.respond(&session, respond(1));
                submit(&session, Command::Delete { item: 1001 });
                submit(&session, Command::Delete { item: 1 });
                (session, response)
            };
            let (long, said) = spoken(&mut bed, 9);
            let (short, kept) = spoken(&mut bed, tokens);
            assert!(said.text.starts_with(&kept.text) && said.text.len() > kept.text.len(), "{said:?}");
            let mut heard = kept.text;
            if part {
                // Cuts in the middle of a token.
                heard.pop();
                submit(&short, Command::Truncate { item: 1000, text: heard.clone() });
            }
            submit(&long, Command::Truncate { item: 1000, text: heard });
            let (a, b) = (next(&mut bed, &long), next(&mut bed, &short));
            assert_same(&a, &b, &format!("truncated to {tokens} tokens"));
            drop(short);
            bed.close(long);
        }
    }
}

/// A history with deleted items equals one that never had them.
pub fn delete_equals_a_fresh_history<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    // The items of each turn; those of the first or of the last turn are deleted.
    for deleted in [0, 1] {
        let session = bed.engine.open();
        for turn in 0..2 {
            bed.input(&session, turn, turn as u64);
            bed.respond(&session, to(turn as u64, turn as u64));
        }
        next(&mut bed, &session);
        for item in [deleted, 1000 + deleted, 20, 1009] {
            submit(&session, Command::Delete { item });
        }
        let edited = next(&mut bed, &session);

        let kept = 1 - deleted;
        let fresh = bed.engine.open();
        bed.input(&fresh, kept as usize, kept);
        bed.respond(&fresh, to(kept, kept));
        let replayed = next(&mut bed, &fresh);
        assert_same(&edited, &replayed, &format!("without turn {deleted}"));
        drop(fresh);
        bed.close(session);
    }
}

/// A history with an inserted item equals one that always had it.
pub fn insert_equals_a_fresh_history<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    let text = |place| Command::Insert {
        item: 7,
        place,
        content: MessageContent::Text { role: Role::User, text: "so what then".to_owned() },
    };
    for (place, before) in [(InsertAt::Start, 0), (InsertAt::After(0), 1), (InsertAt::After(1000), 2)] {
        let session = bed.engine.open();
        bed.input(&session, 0, 0);
        bed.respond(&session, to(0, 0));
        next(&mut bed, &session);
        submit(&session, Command::Delete { item: 1009 });
        submit(&session, Command::Delete { item: 20 });
        submit(&session, text(place));
        let edited = next(&mut bed, &session);

        let fresh = bed.engine.open();
        for at in 0..3 {
            if at == before {
                submit(&fresh, text(InsertAt::End));
            }
            match at {
                0 => bed.input(&fresh, 0, 0),
                1 => drop(bed.respond(&fresh, to(0, 0))),
                _ => {}
            }
        }
        let replayed = next(&mut bed, &fresh);
        assert_same(&edited, &replayed, &format!("{place:?}"));
        drop(fresh);
        bed.close(session);
    }
}

/// New instructions equal instructions that always held.
pub fn new_instructions_equal_a_fresh_history<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    let (session, fresh) = (bed.engine.open(), bed.engine.open());
    for (session, first) in [(&session, ""), (&fresh, INSTRUCTIONS)] {
        submit(session, Command::SetInstructions(first.to_owned()));
        bed.input(session, 0, 0);
        bed.respond(session, Respond { instructions: Some(String::new()), ..respond(0) });
        submit(session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
    }
    let (edited, replayed) = (next(&mut bed, &session), next(&mut bed, &fresh));
    assert_same(&edited, &replayed, "new instructions");
    drop(fresh);
    bed.close(session);
}

/// A speculation aborted at any tick equals none. Without audio input it is refused, which equals none too.
pub fn aborted_speculation_equals_none<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    let after_a_turn = |bed: &mut Bed<'_, S>| {
        let session = bed.engine.open();
        bed.input(&session, 0, 0);
        bed.respond(&session, respond(0));
        session
    };
    let plain = after_a_turn(&mut bed);
    bed.input(&plain, 1, 1);
    let expected = bed.respond(&plain, respond(1));
    bed.close(plain);
    let Some(audio) = subject.audio(1) else {
        let session = after_a_turn(&mut bed);
        bed.engine.send(&session, Command::BeginSpeculation { item: 1, respond: respond(1) });
        let refused = session.try_next_event();
        assert!(matches!(refused, Some(Event::Failed { error: SessionError::NothingToCommit, .. })), "{refused:?}");
        bed.input(&session, 1, 1);
        assert_same(&bed.respond(&session, respond(1)), &expected, "after a refused speculation");
        return bed.close(session);
    };
    // Before any output, during it, and after its end.
    for (ticks, cut) in (0..24).map(|ticks| (ticks, audio.len() * (1 + ticks % 5) / 6)).chain([(500, audio.len() / 2)])
    {
        let session = after_a_turn(&mut bed);
        submit(&session, Command::Append(audio[..cut].to_vec()));
        bed.engine.settle();
        submit(&session, Command::BeginSpeculation { item: 1, respond: subject.speculative(respond(1)) });
        bed.engine.ticks(ticks);
        // Audio that follows before the abort.
        submit(&session, Command::Append(audio[cut..cut + 100].to_vec()));
        bed.engine.ticks(2);
        bed.engine.send(&session, Command::AbortSpeculation { response: 1 });
        while session.try_next_event().is_some() {}
        submit(&session, Command::Append(audio[cut + 100..].to_vec()));
        submit(&session, Command::Commit { item: 1 });
        let response = bed.respond(&session, respond(1));
        assert_same(&response, &expected, &format!("aborted after {ticks} ticks"));
        bed.close(session);
    }
}
