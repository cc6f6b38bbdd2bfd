//! Parses tokens into the tree.

use std::collections::HashMap;

use super::ast::{Address, Base, Guard, Instruction, KernelEntry, Module, Operand, Param, Reg, Space, Ty, Variable};
use super::error::PtxError;
use super::lexer::{Token, tokens};
use super::scope::{Scopes, special};

/// Parses a module.
///
/// # Errors
/// The text is not PTX, or not covered; the error has the line.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    Parser { tokens: tokens(text)?, at: 0 }.module()
}

struct Parser {
    tokens: Vec<(u32, Token)>,
    at: usize,
}

/// State of a kernel's body while it is parsed.
#[derive(Default)]
struct Body {
    scopes: Scopes,
    variables: Vec<Variable>,
    instructions: Vec<Instruction>,
    labels: HashMap<String, usize>,
}

impl Parser {
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line)
    }

    fn error<T>(&self, problem: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError::new(self.line(), problem))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn is_sign(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found == word)
    }

    /// Skips a sign, if it is there.
    fn skip(&mut self, sign: char) -> bool {
        let there = self.is_sign(sign);
        self.at += usize::from(there);
        there
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let there = self.is_word(word);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, sign: char) -> Result<(), PtxError> {
        if self.skip(sign) { Ok(()) } else { self.error(format!("`{sign}` is missing")) }
    }

    fn word(&mut self) -> Result<String, PtxError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.error("a name is missing"),
        }
    }

    fn count(&mut self) -> Result<usize, PtxError> {
        let word = self.word()?;
        match number(&word).and_then(|number| usize::try_from(number).ok()) {
            Some(number) => Ok(number),
            None => self.error(format!("`{word}` is no count")),
        }
    }

    fn module(mut self) -> Result<Module, PtxError> {
        let mut module = Module::default();
        while self.peek().is_some() {
            let word = self.word()?;
            match word.as_str() {
                ".version" => drop(self.word()?),
                ".address_size" => {
                    if self.count()? != 64 {
                        return self.error("addresses have 64 bits");
                    }
                }
                ".target" => {
                    module.target = self.word()?;
                    while self.skip(',') {
                        self.word()?;
                    }
                }
                ".visible" | ".extern" | ".weak" => {}
                ".entry" => module.entries.push(self.entry()?),
                ".global" | ".const" => module.variables.push(self.variable(Space::Global)?),
                ".shared" => module.variables.push(self.variable(Space::Shared)?),
                _ => return self.error(format!("`{word}` is not covered outside of a kernel")),
            }
        }
        Ok(module)
    }

    fn entry(&mut self) -> Result<KernelEntry, PtxError> {
        let name = self.word()?;
        let mut params = Vec::new();
        if self.skip('(') {
            while !self.skip(')') {
                let offset = params.last().map_or(0, |last: &Param| last.offset + last.size);
                params.push(self.param(offset)?);
                self.skip(',');
            }
        }
        while let Some(Token::Word(_)) = self.peek() {
            let directive = self.word()?;
            if ![".maxntid", ".reqntid", ".minnctapersm", ".maxnreg"].contains(&directive.as_str()) {
                return self.error(format!("`{directive}` is not covered before a kernel's body"));
            }
            self.count()?;
            while self.skip(',') {
                self.count()?;
            }
        }
        self.expect('{')?;
        let mut body = Body::default();
        body.scopes.open();
        while body.scopes.depth() > 0 {
            self.statement(&mut body)?;
        }
        let Body { scopes, variables, instructions, labels } = body;
        Ok(KernelEntry { name, params, registers: scopes.count, variables, body: instructions, labels })
    }

    fn param(&mut self, after: usize) -> Result<Param, PtxError> {
        if !self.skip_word(".param") {
            return self.error("`.param` is missing");
        }
        let mut align = None;
        let mut ty = None;
        let mut pointer = false;
        loop {
            let word = self.word()?;
            match word.strip_prefix('.') {
                // The alignment behind `.ptr` is that of the pointed-to memory.
                Some("align") => {
                    let found = self.count()?;
                    if !pointer {
                        align = Some(found);
                    }
                }
                Some("ptr") => pointer = true,
                Some("global" | "shared" | "const" | "local") if pointer => {}
                Some(name) => match Ty::named(name) {
                    Some(found) => ty = Some(found),
                    None => return self.error(format!("`.{name}` is not covered in a parameter")),
                },
                None => {
                    let Some(ty) = ty else { return self.error("the parameter has no type") };
                    let length = if self.skip('[') { self.array()? } else { 1 };
                    let align = align.unwrap_or(ty.bytes());
                    let offset = after.next_multiple_of(align.max(1));
                    return Ok(Param { name: word, offset, size: ty.bytes() * length });
                }
            }
        }
    }

    /// Length of an array, after its first bracket; 0 for `[]`.
    fn array(&mut self) -> Result<usize, PtxError> {
        if self.skip(']') {
            return Ok(0);
        }
        let length = self.count()?;
        self.expect(']')?;
        Ok(length)
    }

    /// Parses a variable, after its state space.
    fn variable(&mut self, space: Space) -> Result<Variable, PtxError> {
        let mut align = None;
        if self.skip_word(".align") {
            align = Some(self.count()?);
        }
        let word = self.word()?;
        let Some(ty) = word.strip_prefix('.').and_then(Ty::named) else {
            return self.error(format!("`{word}` is not covered in a variable"));
        };
        let name = self.word()?;
        let length = if self.skip('[') { self.array()? } else { 1 };
        let mut init = Vec::new();
        if self.skip('=') {
            let several = self.skip('{');
            loop {
                let value = self.immediate()?;
                init.extend_from_slice(&value.to_le_bytes()[..ty.bytes()]);
                if !several || !self.skip(',') {
                    break;
                }
            }
            if several {
                self.expect('}')?;
            }
        }
        self.expect(';')?;
        let align = align.unwrap_or(ty.bytes());
        Ok(Variable { name, space, align, size: ty.bytes() * length, init })
    }

    fn statement(&mut self, body: &mut Body) -> Result<(), PtxError> {
        if self.skip('{') {
            body.scopes.open();
            return Ok(());
        }
        if self.skip('}') {
            body.scopes.close();
            return Ok(());
        }
        // An empty statement, as inline assembly leaves behind.
        if self.skip(';') {
            return Ok(());
        }
        let line = self.line();
        let mut guard = None;
        if self.skip('@') {
            let negated = self.skip('!');
            let reg = self.register(body)?;
            if reg.bits != 1 {
                return self.error("a guard is a predicate");
            }
            guard = Some(Guard { reg, negated });
        }
        let word = self.word()?;
        if self.skip(':') {
            if body.labels.insert(word.clone(), body.instructions.len()).is_some() {
                return self.error(format!("the label `{word}` is there twice"));
            }
            return Ok(());
        }
        match word.as_str() {
            ".reg" => self.registers(body),
            ".shared" | ".local" => {
                let space = if word == ".local" { Space::Local } else { Space::Shared };
                body.variables.push(self.variable(space)?);
                Ok(())
            }
            ".pragma" => {
                self.at += 1;
                self.expect(';')
            }
            _ if word.starts_with('.') => self.error(format!("`{word}` is not covered in a kernel")),
            _ => {
                let mut operands = Vec::new();
                while !self.skip(';') {
                    operands.push(self.operand(body)?);
                    if !self.skip(',') && !self.is_sign(';') {
                        return self.error("`;` is missing");
                    }
                }
                body.instructions.push(Instruction { line, guard, opcode: word, operands });
                Ok(())
            }
        }
    }

    fn registers(&mut self, body: &mut Body) -> Result<(), PtxError> {
        let word = self.word()?;
        let Some(ty) = word.strip_prefix('.').and_then(Ty::named) else {
            return self.error(format!("`{word}` is not covered in a register"));
        };
        loop {
            let name = self.word()?;
            if self.skip('<') {
                let count = self.count()?;
                self.expect('>')?;
                body.scopes.range(name, count as u32, ty.bits());
            } else {
                body.scopes.single(name, ty.bits());
            }
            if !self.skip(',') {
                return self.expect(';');
            }
        }
    }

    fn register(&mut self, body: &Body) -> Result<Reg, PtxError> {
        let name = self.word()?;
        match body.scopes.find(&name) {
            Some(reg) => Ok(reg),
            None => self.error(format!("the register `{name}` is not declared")),
        }
    }

    fn operand(&mut self, body: &Body) -> Result<Operand, PtxError> {
        let first = self.simple(body)?;
        if self.skip('|') {
            let second = self.simple(body)?;
            return Ok(Operand::Both(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn simple(&mut self, body: &Body) -> Result<Operand, PtxError> {
        if self.skip('!') {
            return Ok(Operand::Not(self.register(body)?));
        }
        if self.skip('{') {
            let mut parts = Vec::new();
            while !self.skip('}') {
                parts.push(self.simple(body)?);
                self.skip(',');
            }
            return Ok(Operand::Vector(parts));
        }
        if self.skip('[') {
            let address = self.address(body)?;
            self.expect(']')?;
            return Ok(Operand::Address(address));
        }
        let Some(Token::Word(word)) = self.peek() else {
            return Ok(Operand::Imm(self.immediate()?));
        };
        if word == "_" {
            self.at += 1;
            return Ok(Operand::Sink);
        }
        if word.starts_with(|sign: char| sign.is_ascii_digit()) {
            return Ok(Operand::Imm(self.immediate()?));
        }
        let word = self.word()?;
        if let Some(reg) = body.scopes.find(&word) {
            return Ok(Operand::Reg(reg));
        }
        match word.as_str() {
            "WARP_SZ" => return Ok(Operand::Imm(32)),
            _ if word.starts_with('%') => {}
            _ => return Ok(Operand::Symbol(word)),
        }
        match special(&word) {
            Some(special) => Ok(Operand::Special(special)),
            None => self.error(format!("`{word}` is no register that is declared or covered")),
        }
    }

    fn address(&mut self, body: &Body) -> Result<Address, PtxError> {
        let base = match self.peek() {
            Some(Token::Word(word)) if !word.starts_with(|sign: char| sign.is_ascii_digit()) => {
                let word = self.word()?;
                match body.scopes.find(&word) {
                    Some(reg) => Base::Reg(reg),
                    None if word.starts_with('%') => {
                        return self.error(format!("the register `{word}` is not declared"));
                    }
                    None => Base::Symbol(word),
                }
            }
            _ => return Ok(Address { base: Base::Zero, offset: self.immediate()? as i64 }),
        };
        let offset = if self.skip('+') { self.immediate()? as i64 } else { 0 };
        Ok(Address { base, offset })
    }

    fn immediate(&mut self) -> Result<u64, PtxError> {
        let negative = self.skip('-');
        let word = self.word()?;
        match number(&word) {
            Some(value) if negative => Ok(value.wrapping_neg()),
            Some(value) => Ok(value),
            None => self.error(format!("`{word}` is no number")),
        }
    }
}

/// Bits of a number: decimal, octal, hexadecimal or binary, or a float's bits after `0f` and `0d`.
fn number(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    let radix = |digits: &str, radix| u64::from_str_radix(digits.trim_end_matches('u'), radix).ok();
    match lower.get(..2) {
        Some("0f" | "0d" | "0x") => radix(&lower[2..], 16),
        Some("0b") => radix(&lower[2..], 2),
        Some(two) if two.starts_with('0') && two.as_bytes()[1].is_ascii_digit() => radix(&lower[1..], 8),
        _ => radix(&lower, 10),
    }
}
