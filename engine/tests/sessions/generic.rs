//! Properties of every family: Qwen3-Omni, Qwen2.5-Omni, Qwen3-TTS, Kokoro, LFM2.5-Audio and LFM2-Audio, CosyVoice3, MiMo-Audio, Fun-Audio-Chat, Covo-Audio, Ming, Dynin-Omni, both forms of a synthetic
//! family, a family that answers with text alone, cascades of it with a recogniser and with a voice that streams text in or speaks clauses, a toy
//! family, and cascades whose language model is outside of the engine. These are exempt from one property,
//! `a_seed_fixes_the_response`: their server has the seed.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine::HandOff;
use repartee_engine_testkit::clause_family::{ClauseCascade, ClauseSpeech};
use repartee_engine_testkit::generic::subjects::{
    ClauseVoice, Cosy, CovoChat, Dynin, FunChat, Lfm25, MiMo, MingTts, Omni, Omni25, Other, OtherEncoder, Tts,
};
use repartee_engine_testkit::generic::toy::Toy;
use repartee_engine_testkit::generic::{aborts, conversations, interleavings, rewinds};
use repartee_engine_testkit::other_family::Form;
use repartee_engine_testkit::remote_family::{RemoteCascade, RemoteText};
use repartee_engine_testkit::text_family::{Cascade, HearingCascade, TextOnly};

/// Test of the seed, unless the family samples elsewhere.
macro_rules! seeded {
    ($subject:expr) => {
        #[test]
        fn a_seed_fixes_the_response() {
            conversations::a_seed_fixes_the_response(&$subject);
        }
    };
    ($subject:expr, sampled_elsewhere) => {};
}

/// Generic tests of one family.
macro_rules! suite {
    ($family:ident, $subject:expr, $cases:expr $(, $exempt:ident)?) => {
        mod $family {
            use super::*;

            #[test]
            fn any_cut_equals_the_whole() {
                conversations::any_cut_equals_the_whole(&$subject);
            }
            #[test]
            fn a_cut_answer_ends_in_length() {
                conversations::a_cut_answer_ends_in_length(&$subject);
            }
            #[test]
            fn every_setting_gives_the_same() {
                conversations::every_setting_gives_the_same(&$subject);
            }
            #[test]
            fn any_thread_count_gives_the_same() {
                conversations::any_thread_count_gives_the_same(&$subject);
            }
            #[test]
            fn any_prefill_chunk_gives_the_same() {
                conversations::any_prefill_chunk_gives_the_same(&$subject);
            }
            #[test]
            fn together_equals_alone() {
                conversations::together_equals_alone(&$subject);
            }
            seeded!($subject $(, $exempt)?);
            #[test]
            fn cancel_at_any_tick_equals_never() {
                aborts::cancel_at_any_tick_equals_never(&$subject);
            }
            #[test]
            fn barge_in_equals_a_shorter_response() {
                aborts::barge_in_equals_a_shorter_response(&$subject);
            }
            #[test]
            fn drop_at_any_tick_frees_everything() {
                aborts::drop_at_any_tick_frees_everything(&$subject);
            }
            #[test]
            fn truncate_equals_a_shorter_response() {
                rewinds::truncate_equals_a_shorter_response(&$subject);
            }
            #[test]
            fn delete_equals_a_fresh_history() {
                rewinds::delete_equals_a_fresh_history(&$subject);
            }
            #[test]
            fn insert_equals_a_fresh_history() {
                rewinds::insert_equals_a_fresh_history(&$subject);
            }
            #[test]
            fn new_instructions_equal_a_fresh_history() {
                rewinds::new_instructions_equal_a_fresh_history(&$subject);
            }
            #[test]
            fn aborted_speculation_equals_none() {
                rewinds::aborted_speculation_equals_none(&$subject);
            }
            #[test]
            fn interleavings_equal_serial_runs() {
                interleavings::equal_serial_runs(&$subject, $cases);
            }
            #[test]
            #[ignore = "minutes: make test-long"]
            fn many_interleavings_equal_serial_runs() {
                interleavings::equal_serial_runs(&$subject, 20 * $cases);
            }
        }
    };
}

suite!(qwen3_omni, Omni::greedy(), 8);
suite!(qwen3_omni_replayed, Omni::greedy().replayed(), 4);
suite!(qwen2_5_omni, Omni25::default(), 4);
suite!(qwen2_5_omni_replayed, Omni25 { replayed: true }, 2);
suite!(qwen3_tts, Tts::default(), 8);
suite!(qwen3_tts_streamed, Tts { streamed: true, ..Tts::default() }, 8);
suite!(qwen3_tts_cloned, Tts { cloned: true, ..Tts::default() }, 4);
suite!(qwen3_tts_replayed, Tts { streamed: true, replayed: true, ..Tts::default() }, 4);
suite!(kokoro, ClauseVoice { streamed: false }, 8);
suite!(kokoro_streamed, ClauseVoice { streamed: true }, 8);
suite!(audio_input, Other(Form::Hearing), 12);
suite!(given_text, Other(Form::GivenText), 12);
suite!(text_only, TextOnly::default(), 12);
suite!(text_only_local_layers, TextOnly { local_layers: true }, 8);
suite!(cascade, Cascade, 8);
suite!(clauses, ClauseSpeech { streamed: false }, 12);
suite!(clauses_streamed, ClauseSpeech { streamed: true }, 12);
suite!(clause_cascade, ClauseCascade, 8);
suite!(hearing_text, HearingCascade { audio_output: false }, 12);
suite!(hearing_cascade, HearingCascade { audio_output: true }, 8);
suite!(cosyvoice3, Cosy::default(), 1);
suite!(cosyvoice3_streamed, Cosy { streamed: true, replayed: true, ..Cosy::default() }, 1);
suite!(cosyvoice3_cloned, Cosy { cloned: true, ..Cosy::default() }, 1);
suite!(lfm2_audio, Lfm25::default(), 4);
suite!(lfm2_audio_replayed, Lfm25 { replayed: true, ..Lfm25::default() }, 2);
suite!(lfm2_audio_older, Lfm25 { older: true, ..Lfm25::default() }, 2);
suite!(lfm2_audio_older_replayed, Lfm25 { older: true, replayed: true }, 1);
suite!(dynin_omni, Dynin::default(), 2);
suite!(dynin_omni_streamed, Dynin { streamed: true }, 1);
suite!(fun_audio_chat, FunChat::default(), 2);
suite!(fun_audio_chat_replayed, FunChat { replayed: true }, 1);
suite!(covo_audio, CovoChat::default(), 2);
suite!(covo_audio_replayed, CovoChat { replayed: true }, 1);
suite!(mimo_audio, MiMo::default(), 2);
suite!(mimo_audio_replayed, MiMo { replayed: true }, 1);
suite!(ming, MingTts::default(), 2);
suite!(ming_streamed, MingTts { streamed: true, replayed: true }, 1);
suite!(toy, Toy, 12);
suite!(remote_text, RemoteText, 12, sampled_elsewhere);
suite!(remote_cascade, RemoteCascade, 8, sampled_elsewhere);

/// Properties that depend on the audio encoder.
mod other_encoder {
    use super::*;

    #[test]
    fn any_cut_equals_the_whole() {
        conversations::any_cut_equals_the_whole(&OtherEncoder(Omni::greedy()));
    }
    #[test]
    fn every_setting_gives_the_same() {
        conversations::every_setting_gives_the_same(&OtherEncoder(Omni::greedy()));
    }
    #[test]
    fn any_thread_count_gives_the_same() {
        conversations::any_thread_count_gives_the_same(&OtherEncoder(Omni::greedy()));
    }
    #[test]
    fn together_equals_alone() {
        conversations::together_equals_alone(&OtherEncoder(Omni::greedy()));
    }
}

#[test]
fn the_demo_is_equal_on_any_thread_count() {
    // The demo's operations are large enough to be split.
    conversations::any_thread_count_gives_the_same(&Omni::demo());
}

#[test]
fn sampled_speech_equals_serial_runs() {
    interleavings::equal_serial_runs(&Omni::sampling(), 6);
}

#[test]
fn rewind_into_shared_blocks_equals_fresh_history() {
    // An out-of-band response shares the rows of the instructions while they change.
    let steps = [(32, 25, 1760), (186, 19, 43229), (60, 175, 38963), (192, 199, 0), (147, 109, 35152), (36, 199, 0)];
    for hand_off in [HandOff::FullPayload, HandOff::AsyncChunk] {
        let reader = Tts { streamed: true, ..Tts::default() };
        interleavings::check(&reader, &interleavings::mode(true, hand_off), &steps).unwrap();
    }
}

#[test]
fn speech_ending_early_keeps_the_whole_text() {
    // The talker stops early here, with two tokens of the thinker left.
    let steps = [(0, 0, 11400), (0, 0, 15280), (7, 0, 37594), (3, 0, 0), (8, 0, 0)];
    for hand_off in [HandOff::FullPayload, HandOff::AsyncChunk] {
        interleavings::check(&Omni::sampling(), &interleavings::mode(true, hand_off), &steps).unwrap();
    }
}
