//! The command itself: what it says, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

fn repartee(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_repartee")).args(arguments).output().unwrap()
}

/// The command is refused with exit code 2 and these words.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = repartee(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn a_public_address_is_refused() {
    refused(&["serve", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "no keys", "127.0.0.1"]);
    refused(&["--listen", "[::]:0"], &["no keys"]);
}

#[test]
fn what_is_no_checkpoint_is_refused_by_name() {
    refused(&["serve", "--model", "/no/such/folder"], &["/no/such/folder"]);
    refused(&["ask", "a.wav", "b.wav", "--model", "/no/such/folder"], &["/no/such/folder"]);
}

#[test]
fn a_question_that_is_not_there_is_said() {
    refused(&["ask", "/no/such/question.wav", "answer.wav"], &["/no/such/question.wav"]);
}

#[test]
fn an_address_in_use_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["--listen", &address], &[&address]);
}

#[test]
fn it_prints_its_address_and_ends_well_when_told_to() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_repartee"))
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("http://127.0.0.1:"), "{line}");
        Command::new("kill").args([signal, &server.id().to_string()]).status().unwrap();
        assert!(server.wait().unwrap().success());
    }
}
