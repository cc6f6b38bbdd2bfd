//! Summaries of checkpoints and files, without their weights.

use repartee_engine::summary::summarise;
use repartee_engine_testkit::forms::checkpoint;

#[test]
fn summaries_tell_form_and_family() {
    for (form, expected) in [
        ("pickles", "PyTorch, 6 files"),
        ("fp8", "safetensors, 1 file, FP8"),
        ("awq", "safetensors, 1 file, AWQ"),
        ("gptq", "safetensors, 1 file, GPTQ"),
    ] {
        let copy = checkpoint(form);
        let summary = summarise(copy.path()).unwrap();
        assert_eq!(summary.form, expected);
        assert_eq!(summary.served.as_deref(), Ok("Qwen2_5OmniForConditionalGeneration"));
        assert!(summary.stacks.iter().any(|stack| stack.contains("text_config: 3 layers, width 48")), "{summary:?}");
        assert_eq!(summary.tokenizer.as_deref(), Some("tokenizer.json"));
    }
    let single = summarise(&checkpoint("pickles").path().join("pytorch_model-00001-of-00006.bin")).unwrap();
    assert_eq!((single.form.as_str(), single.tensors[0].format.as_str()), ("PyTorch", "BF16"));
    assert!(single.served.unwrap_err().contains("name the folder"));
    let gguf = repartee_engine_testkit::root().join("engine/checkpoint/tests/data/blocks.gguf");
    let gguf = summarise(&gguf).unwrap();
    assert_eq!(gguf.architecture.as_deref(), Some("llama (blocks)"));
    assert_eq!(gguf.stacks, ["2 layers, width 512, 8 heads, context 1024, 5 tokens"]);
    assert_eq!(gguf.tensors.iter().map(|total| total.count).sum::<usize>(), 13);
    assert_eq!(gguf.template.as_deref(), Some("tokenizer.chat_template"));
    assert!(gguf.served.unwrap_err().contains("`llama`"));
    let folder = repartee_engine_testkit::folder("gguf_qwen2").join("checkpoint");
    let [folder, file] = [folder.clone(), folder.join("model.gguf")].map(|path| summarise(&path).unwrap());
    assert_eq!(folder, file, "a folder of one file is that file");
    assert_eq!(file.served.as_deref(), Ok("Llama, Mistral, Qwen2, Qwen3, Gemma 3 (text)"));
}
