//! Checkpoints in every published form: `repartee ask` answers with them, `repartee check` describes them.

use std::path::Path;
use std::process::{Command, Output};

use repartee_engine_testkit::forms::{FORMS, checkpoint};
use repartee_engine_testkit::root;

fn repartee(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_repartee")).args(arguments).output().unwrap()
}

#[test]
fn every_form_answers() {
    let question = root().join("tests/questions/three-plus-four.wav");
    for form in FORMS {
        let (model, folder) = (checkpoint(form), tempfile::tempdir().unwrap());
        let answer = folder.path().join("answer.wav");
        let output = repartee(&["ask".as_ref(), &question, &answer, "--model".as_ref(), model.path()]);
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{form}: {errors}");
        assert!(said.contains("s of speech in") && answer.is_file(), "{form}: {said}");
        // A lossy conversion is logged once.
        let told = errors.lines().filter(|line| line.contains("rounded")).count();
        assert_eq!(told, usize::from(form != "pickles"), "{form}: {errors}");
    }
}

#[test]
fn a_card_without_an_end_is_left_out() {
    let (question, folder) = (root().join("tests/questions/three-plus-four.wav"), tempfile::tempdir().unwrap());
    for file in std::fs::read_dir(root().join("models/demo")).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() && file.file_name() != "repartee.json" {
            std::os::unix::fs::symlink(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("repartee.json")).unwrap();
    let answer = folder.path().join("answer.wav");
    let output = repartee(&["ask".as_ref(), &question, &answer, "--model".as_ref(), folder.path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(answer.is_file());
}

#[test]
fn check_describes_folders_and_files() {
    let gguf = root().join("engine/checkpoint/tests/data/blocks.gguf");
    let (awq, described) = (checkpoint("awq"), |path: &Path| {
        let output = repartee(&["check".as_ref(), path]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    });
    let folder = described(awq.path());
    for line in [
        "form          safetensors, 1 file, AWQ\n",
        "architecture  Qwen2_5OmniForConditionalGeneration\n",
        "thinker_config.text_config: 3 layers, width 48",
        "tokenizer     tokenizer.json\n",
        "served        yes, as Qwen2_5OmniForConditionalGeneration\n",
    ] {
        assert!(folder.contains(line), "{line} in {folder}");
    }
    let file = described(&gguf);
    for line in [
        "form          GGUF, no licence named\n",
        "architecture  llama (blocks)\n",
        "sizes         2 layers, width 512, 8 heads, context 1024, 5 tokens\n",
        "tensors       13 of ",
        "tokenizer     gpt2, split as smollm, 5 tokens, 1 merges\n",
        "served        no: ",
        "tensor BF16.weight: is unknown in files of `llama`: choose another model\n",
    ] {
        assert!(file.contains(line), "{line} in {file}");
    }
}

#[test]
fn check_refuses_what_it_cannot_read() {
    for (path, words) in [("/no/such/path", "/no/such/path: file missing"), ("/dev/zero", "/dev/zero: is a device")] {
        let output = repartee(&["check".as_ref(), path.as_ref()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
