use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use repartee_engine_api::EnrolError;
use repartee_media::{pcm, wav};
use repartee_testkit::scripted::{Script, ScriptedEngine};
use tempfile::TempDir;

use super::*;

fn engine(enrols: bool) -> Arc<ScriptedEngine> {
    ScriptedEngine::new(Script { accepts_enrolment: enrols, ..Script::default() })
}

fn store(engine: &Arc<ScriptedEngine>, folder: Option<&Path>) -> VoiceStore {
    let settings = VoiceConfig { folder: folder.map(Path::to_owned), most: 2 };
    VoiceStore::open(&settings, engine.clone(), IdGenerator::new().unwrap(), |_| {}).unwrap()
}

/// Wav file of a sound of this length.
fn sound(seconds: f32) -> Vec<u8> {
    wav::encode(&vec![0.25; (seconds * 8_000.0) as usize], 8_000).unwrap()
}

fn add(store: &VoiceStore) -> (Consent, Voice) {
    let consent = store.add_consent("mine", "en-US", &sound(1.0)).unwrap();
    let voice = store.add_voice("Ada", &consent.id, &sound(2.0), " Hello there. ").unwrap().voice;
    (consent, voice)
}

/// Names of all files below a folder.
fn files(folder: &TempDir) -> Vec<String> {
    let folders = ["consents", "voices"].map(|name| std::fs::read_dir(folder.path().join(name)).unwrap());
    let mut names: Vec<_> =
        folders.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn kept_voices_are_enrolled_again() {
    let folder = TempDir::new().unwrap();
    let first = engine(true);
    let kept = store(&first, Some(folder.path()));
    let (consent, voice) = add(&kept);
    assert_eq!(first.voices()[2..].concat(), voice.id);
    drop(kept);

    let second = engine(true);
    let kept = store(&second, Some(folder.path()));
    assert_eq!((kept.consents(), kept.voices()), (vec![consent], vec![voice.clone()]));
    assert_eq!(second.enrolled(), first.enrolled(), "the engine hears what it heard before");
    assert_eq!(second.enrolled()[&voice.id].text, "Hello there.");
    // A model with a fixed set of voices offers no enrolled voice, and deletes none.
    let fixed = store(&engine(false), Some(folder.path()));
    assert!(fixed.voices().is_empty());
    assert_eq!(files(&folder).len(), 4);
}

#[test]
fn consents_that_are_taken_back_take_their_voices() {
    let folder = TempDir::new().unwrap();
    let engine = engine(true);
    let store = store(&engine, Some(folder.path()));
    let (consent, _) = add(&store);
    let (other, kept) = add(&store);
    store.delete_consent(&consent.id).unwrap();
    assert_eq!((store.consents(), store.voices()), (vec![other.clone()], vec![kept.clone()]));
    assert_eq!(engine.enrolled().into_keys().collect::<Vec<_>>().concat(), kept.id);
    let mut left = [&other.id, &kept.id].map(|id| ["json", "wav"].map(|end| format!("{id}.{end}"))).concat();
    left.sort();
    assert_eq!(files(&folder), left);
    assert!(matches!(store.delete_consent(&consent.id), Err(VoiceError::UnknownConsent(_))));
    store.delete_voice(&kept.id).unwrap();
    assert!(matches!(store.delete_voice(&kept.id), Err(VoiceError::UnknownVoice(_))));
    assert!(engine.enrolled().is_empty());
}

#[test]
fn voices_and_consents_are_bounded() {
    let engine = engine(true);
    let store = store(&engine, None);
    let (consent, _) = add(&store);
    add(&store);
    // Nothing is decoded for whom there is no room: no recording is wrong then.
    for recording in [&sound(2.0)[..], b"no sound"] {
        let voice = store.add_voice("Bob", &consent.id, recording, "");
        assert!(matches!(voice, Err(VoiceError::Full { what: "voices", most: 2 })), "{voice:?}");
        let passing = store.pass_voice(&consent.id, (recording, ""), ["ref_audio", "ref_text"]).map(drop);
        assert!(matches!(passing, Err(VoiceError::Full { what: "voices", most: 2 })), "{passing:?}");
        let third = store.add_consent("third", "en", recording);
        assert!(matches!(third, Err(VoiceError::Full { what: "consents", most: 2 })), "{third:?}");
    }
    assert_eq!(engine.enrolled().len(), 2);
    // Refused recordings reserve no room.
    store.delete_voice(&store.voices()[0].id).unwrap();
    for _ in 0..3 {
        let short = store.add_voice("Bob", &consent.id, &sound(0.5), "");
        assert!(matches!(short, Err(VoiceError::Enrol(EnrolError::Recording { .. }))), "{short:?}");
    }
    store.add_voice("Bob", &consent.id, &sound(2.0), "").unwrap();
}

#[test]
fn fields_are_checked_by_name() {
    let store = store(&engine(true), None);
    let consent = store.add_consent("mine", "en", &sound(1.0)).unwrap().id;
    let named = |refused: Result<(), VoiceError>| match refused {
        Err(VoiceError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let long = "x".repeat(MAX_NAME_CHARS + 1);
    for name in ["", "  ", "a\u{7}b", &long] {
        assert_eq!(named(store.add_consent(name, "en", &sound(1.0)).map(drop)), "name");
        assert_eq!(named(store.add_voice(name, &consent, &sound(2.0), "").map(drop)), "name");
        assert_eq!(named(store.rename_consent(&consent, name).map(drop)), "name");
    }
    for language in ["", "e", "en/../US", &long] {
        assert_eq!(named(store.add_consent("mine", language, &sound(1.0)).map(drop)), "language");
    }
    for recording in [&b"OggS"[..], &[], &sound(61.0), &wav::encode(&[], 8_000).unwrap()] {
        assert_eq!(named(store.add_consent("mine", "en", recording).map(drop)), "recording");
        assert_eq!(named(store.add_voice("Ada", &consent, recording, "").map(drop)), "audio_sample");
    }
    assert_eq!(named(store.add_voice("Ada", &consent, &sound(2.0), &"x".repeat(3_000)).map(drop)), "text");
    let unknown = store.add_voice("Ada", "cons_none", &sound(2.0), "");
    assert!(matches!(unknown, Err(VoiceError::UnknownConsent(_))), "{unknown:?}");
}

#[test]
fn damaged_files_leave_the_others_out_of_it() {
    let folder = TempDir::new().unwrap();
    let kept = store(&engine(true), Some(folder.path()));
    let (_, voice) = add(&kept);
    let (_, silent) = add(&kept);
    let at = |name: &str| folder.path().join("voices").join(name);
    std::fs::write(at(&format!("{}.wav", silent.id)), pcm::encode_i16le(&[0.0; 8])).unwrap();
    std::fs::write(at("voice_half.json"), "{\"id\": \"voice_h").unwrap();
    // An entry must not delete another file by its id.
    let moved = serde_json::to_vec(&Voice { id: "../consents/x".into(), ..voice.clone() }).unwrap();
    std::fs::write(at("voice_moved.json"), moved).unwrap();
    std::fs::write(folder.path().join("consents/x.wav"), sound(2.0)).unwrap();
    let engine = engine(true);
    let again = store(&engine, Some(folder.path()));
    assert_eq!(engine.enrolled().into_keys().collect::<Vec<_>>().concat(), voice.id);
    assert_eq!(again.voices(), [voice]);
}

#[test]
fn nobody_else_reads_the_folder() {
    let folder = TempDir::new().unwrap();
    let inner = folder.path().join("deep").join("voices");
    let (_, voice) = add(&store(&engine(true), Some(&inner)));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = inner.join("voices").join(format!("{}.wav", voice.id));
    assert_eq!((mode(&inner.join("voices")), mode(&file)), (0o700, 0o600));
    // Startup reports an unusable folder.
    let settings = VoiceConfig { folder: Some(file), most: 2 };
    let refused = VoiceStore::open(&settings, engine(true), IdGenerator::new().unwrap(), |_| {}).map(drop).unwrap_err();
    assert!(refused.to_string().starts_with("voices.folder: "), "{refused}");
}
