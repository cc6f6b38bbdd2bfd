//! Random changes of saved offers: a valid answer or an error that names a line of the offer, and bounded work.

use repartee_sdp::Offer;
use repartee_testkit::fuzz::fuzz;
use repartee_testkit::memory::{CountScope, counts};
use repartee_testkit::offer_edits::mutate;
use repartee_testkit::random::Random;
use repartee_testkit::session_description::faults;

use super::{answer, saved};

/// Largest number of allocations for one line of an offer: work is linear in the offer's size.
const ALLOCATIONS: u64 = 12;
/// Allocations that do not depend on the size.
const FIXED_ALLOCATIONS: u64 = 400;

/// Asserts that the offer gets a valid answer, or an error that names one of its lines; true if it gets an answer.
fn is_answered(offer: &str) -> bool {
    let before = counts(CountScope::Thread).allocations;
    let answered = answer(offer);
    let spent = counts(CountScope::Thread).allocations - before;
    let lines = offer.trim_end_matches(['\r', '\n']).split('\n').count();
    assert!(spent < ALLOCATIONS * lines as u64 + FIXED_ALLOCATIONS, "{spent} allocations for {lines} lines");
    match answered {
        Ok(answer) => {
            assert_eq!(faults(offer, &answer), [""; 0], "{offer}\n{answer}");
            // What the library gets is an offer that changes no decision.
            let (first, again) = (Offer::read(offer).unwrap(), Offer::read(offer).unwrap().library_offer());
            let again = Offer::read(&again).unwrap_or_else(|error| panic!("{error}: {again}"));
            assert_eq!(again.rejected().count(), 0);
            assert_eq!(again.transport.credentials, first.transport.credentials);
            assert_eq!(again.transport.is_passive, first.transport.is_passive);
            assert_eq!(
                (again.has_red(), again.max_message_size().is_some()),
                (first.has_red(), first.max_message_size().is_some())
            );
            true
        }
        Err(error) => {
            assert!((1..=lines).contains(&error.line), "{error}: {lines} lines");
            assert!(error.to_string().starts_with(&format!("line {} of the offer: ", error.line)));
            false
        }
    }
}

fn mutated_offers(count: usize, seed: u64) {
    let (offers, mut random) = (saved(), Random::new(seed));
    let mut answered = 0;
    for _ in 0..count {
        let (_, offer) = random.choose(&offers);
        let offer = mutate(offer, &mut random);
        answered += usize::from(is_answered(&offer));
    }
    assert!(answered > count / 4 && answered < count - count / 20, "{answered} of {count} are answered");
}

fn garbled_offers(count: usize, seed: u64) {
    let corpus: Vec<_> = saved().into_iter().map(|(_, offer)| offer.into_bytes()).collect();
    let mut answered = 0;
    fuzz(&corpus, count, seed, |input| {
        answered += usize::from(is_answered(&String::from_utf8_lossy(input)));
    });
    assert!(answered > count / 8, "{answered} of {count} are answered");
}

#[test]
fn changed_offers_get_valid_answers_or_errors() {
    mutated_offers(600, 0x5eed);
}

#[test]
fn garbled_offers_get_valid_answers_or_errors() {
    garbled_offers(400, 0x5eed);
}

#[test]
#[ignore = "many more of the same: for the long suite"]
fn many_changed_offers_get_valid_answers_or_errors() {
    mutated_offers(50_000, 0xfeed);
    garbled_offers(50_000, 0xfeed);
}
