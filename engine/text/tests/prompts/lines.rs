//! Lines of many alphabets: the generator of tests/parity/prompts/lines.py, step by step.

use serde::Deserialize;

use super::fixture;

#[derive(Deserialize)]
struct Tables {
    alphabets: Vec<String>,
    words: Vec<String>,
    typed: Vec<String>,
    marks: String,
    gaps: Vec<String>,
}

struct Lines {
    tables: Tables,
    state: u64,
}

impl Lines {
    fn draw(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % below
    }

    fn word(&mut self) -> String {
        let kind = self.draw(10);
        if kind < 2 {
            let at = self.draw(self.tables.words.len());
            return self.tables.words[at].clone();
        }
        if kind == 2 {
            return (0..1 + self.draw(6)).map(|_| self.draw(10).to_string()).collect();
        }
        if kind == 3 {
            let marks: Vec<char> = self.tables.marks.chars().collect();
            return (0..1 + self.draw(4)).map(|_| marks[self.draw(marks.len())]).collect();
        }
        if kind == 4 && self.draw(3) == 0 {
            let at = self.draw(self.tables.typed.len());
            return self.tables.typed[at].clone();
        }
        let at = self.draw(self.tables.alphabets.len());
        let ends: Vec<u32> = self.tables.alphabets[at].chars().map(u32::from).collect();
        let count = ends[1] - ends[0] + 1;
        (0..1 + self.draw(8)).map(|_| char::from_u32(ends[0] + self.draw(count as usize) as u32).unwrap()).collect()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        for at in 0..1 + self.draw(12) {
            if at > 0 {
                let gap = self.draw(24);
                line += self.tables.gaps.get(gap).map_or(" ", String::as_str);
            }
            line += &self.word();
        }
        match self.draw(12) {
            0 => line.insert_str(0, "  "),
            1 => line.push(' '),
            2 => line.push('\n'),
            _ => {}
        }
        line
    }
}

/// Lines of a seed.
pub fn lines(seed: u64, count: usize) -> Vec<String> {
    let tables = serde_json::from_slice(&fixture("lines.json")).unwrap();
    let mut made = Lines { tables, state: seed };
    (0..count).map(|_| made.line()).collect()
}
