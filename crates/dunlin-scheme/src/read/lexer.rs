//! Tokens of Scheme text.

use crate::datum::{Kind, Pos};
use crate::names::Symbols;
use crate::num::Number;

/// What is open until its end, or its one datum, is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    List,
    Vector,
    Bytes,
    /// `'x` and its like: complete after one datum.
    Quotation(&'static str),
    /// `#;`: complete, and gone, after one datum.
    Comment,
    Label(u32),
}

pub(super) enum Token {
    End,
    Open(Shape),
    Close,
    Dot,
    Datum(Kind),
}

/// Where, what is wrong, and whether the text ended too early.
pub(super) type LexError = (Pos, String, bool);

pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    pos: Pos,
    fold_case: bool,
}

/// The names of characters, as `write` shows them; of several names the first.
pub(crate) const CHARACTER_NAMES: [(&str, char); 10] = [
    ("space", ' '),
    ("newline", '\n'),
    ("tab", '\t'),
    ("return", '\r'),
    ("null", '\0'),
    ("alarm", '\x07'),
    ("backspace", '\x08'),
    ("delete", '\x7f'),
    ("escape", '\x1b'),
    ("linefeed", '\n'),
];

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str, source: u32, fold_case: bool) -> Self {
        Self { text, at: 0, pos: Pos { line: 1, column: 1, source }, fold_case }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn next(&mut self, symbols: &mut Symbols) -> Result<(Pos, Token), LexError> {
        self.skip_blanks()?;
        let pos = self.pos;
        let Some(first) = self.peek() else { return Ok((pos, Token::End)) };
        let token = match first {
            '(' => self.after(1, Token::Open(Shape::List)),
            ')' => self.after(1, Token::Close),
            '\'' => self.after(1, Token::Open(Shape::Quotation("quote"))),
            '`' => self.after(1, Token::Open(Shape::Quotation("quasiquote"))),
            ',' if self.rest().starts_with(",@") => self.after(2, Token::Open(Shape::Quotation("unquote-splicing"))),
            ',' => self.after(1, Token::Open(Shape::Quotation("unquote"))),
            '"' => {
                self.advance();
                Token::Datum(Kind::String(self.quoted('"', pos)?.into()))
            }
            '#' => self.hash(pos, symbols)?,
            _ => self.word(pos, symbols)?,
        };
        Ok((pos, token))
    }

    fn after(&mut self, characters: usize, token: Token) -> Token {
        for _ in 0..characters {
            self.advance();
        }
        token
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        if next == '\n' {
            self.pos = Pos { line: self.pos.line + 1, column: 1, ..self.pos };
        } else {
            self.pos.column += 1;
        }
        Some(next)
    }

    fn skip_blanks(&mut self) -> Result<(), LexError> {
        loop {
            match self.peek() {
                Some(blank) if blank.is_whitespace() => {
                    self.advance();
                }
                Some(';') => while self.advance().is_some_and(|next| next != '\n') {},
                Some('#') if self.rest().starts_with("#|") => self.skip_block()?,
                Some('#') if self.at == 0 && self.rest().starts_with("#!/") => {
                    while self.advance().is_some_and(|next| next != '\n') {}
                }
                Some('#') if self.rest().starts_with("#!") => {
                    let pos = self.pos;
                    match self.run().as_str() {
                        "#!fold-case" => self.fold_case = true,
                        "#!no-fold-case" => self.fold_case = false,
                        other => return Err((pos, format!("unknown directive {other}"), false)),
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn skip_block(&mut self) -> Result<(), LexError> {
        let start = self.pos;
        let mut depth = 0usize;
        loop {
            if self.rest().starts_with("#|") {
                depth += 1;
                self.after(2, Token::Close);
            } else if self.rest().starts_with("|#") {
                depth -= 1;
                self.after(2, Token::Close);
                if depth == 0 {
                    return Ok(());
                }
            } else if self.advance().is_none() {
                return Err((start, "block comment is not closed".into(), true));
            }
        }
    }

    /// Characters up to a delimiter.
    fn run(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|next| !is_delimiter(next)) {
            self.advance();
        }
        self.text[start..self.at].to_owned()
    }

    fn hash(&mut self, pos: Pos, symbols: &mut Symbols) -> Result<Token, LexError> {
        let rest = self.rest();
        if rest.starts_with("#(") {
            return Ok(self.after(2, Token::Open(Shape::Vector)));
        }
        if rest.starts_with("#u8(") {
            return Ok(self.after(4, Token::Open(Shape::Bytes)));
        }
        if rest.starts_with("#;") {
            return Ok(self.after(2, Token::Open(Shape::Comment)));
        }
        if rest.starts_with("#\\") {
            return self.character(pos);
        }
        let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && digits < 10 {
            let number = rest[1..=digits].parse().expect("nine digits fit");
            match rest.as_bytes().get(digits + 1) {
                Some(b'=') => return Ok(self.after(digits + 2, Token::Open(Shape::Label(number)))),
                Some(b'#') => return Ok(self.after(digits + 2, Token::Datum(Kind::Reference(number)))),
                _ => {}
            }
        }
        let word = self.run();
        let kind = match word.to_ascii_lowercase().as_str() {
            "#t" | "#true" => Kind::Bool(true),
            "#f" | "#false" => Kind::Bool(false),
            _ => match Number::parse(&word, 10) {
                Some(number) => Kind::Number(number),
                // `#` alone may begin a name that only a macro of the program reads.
                None if word.len() > 1 && word.as_bytes()[1] == b'%' => Kind::Symbol(symbols.intern(&word)),
                None => return Err((pos, format!("unknown syntax {}", shortened(&word)), false)),
            },
        };
        Ok(Token::Datum(kind))
    }

    fn character(&mut self, pos: Pos) -> Result<Token, LexError> {
        self.after(2, Token::Close);
        let Some(first) = self.advance() else {
            return Err((pos, "expected a character".into(), true));
        };
        let word = if is_delimiter(first) { String::new() } else { self.run() };
        if word.is_empty() {
            return Ok(Token::Datum(Kind::Char(first)));
        }
        let name = format!("{first}{word}");
        let named = |name: &str| CHARACTER_NAMES.iter().find(|(text, _)| *text == name).map(|(_, char)| *char);
        let value = named(&name).or_else(|| if self.fold_case { named(&name.to_lowercase()) } else { None });
        let value = value.or_else(|| {
            let digits = name.strip_prefix(['x', 'X'])?;
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        });
        match value {
            Some(value) => Ok(Token::Datum(Kind::Char(value))),
            None => Err((pos, format!("unknown character #\\{}", shortened(&name)), false)),
        }
    }

    /// Text up to `end`, after its first delimiter.
    fn quoted(&mut self, end: char, start: Pos) -> Result<String, LexError> {
        let mut text = String::new();
        loop {
            let pos = self.pos;
            match self.advance() {
                None => {
                    let what = if end == '"' { "string" } else { "symbol" };
                    return Err((start, format!("{what} is not closed"), true));
                }
                Some(next) if next == end => return Ok(text),
                Some('\\') => self.escape(&mut text, pos)?,
                Some(next) => text.push(next),
            }
        }
    }

    fn escape(&mut self, text: &mut String, pos: Pos) -> Result<(), LexError> {
        let Some(next) = self.advance() else { return Ok(()) };
        match next {
            'a' => text.push('\x07'),
            'b' => text.push('\x08'),
            't' => text.push('\t'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            '"' | '\\' | '|' => text.push(next),
            'x' | 'X' => {
                let digits: String = self.rest().chars().take_while(char::is_ascii_hexdigit).take(8).collect();
                let value = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                self.after(digits.len(), Token::Close);
                match (value, self.advance()) {
                    (Some(value), Some(';')) => text.push(value),
                    _ => return Err((pos, "expected a character's number in hexadecimal and ;".into(), false)),
                }
            }
            next if next == '\n' || next == ' ' || next == '\t' => {
                // A line that ends with a backslash: blanks around its end are left out.
                let mut line_ends = usize::from(next == '\n');
                while let Some(blank @ (' ' | '\t' | '\n')) = self.peek() {
                    line_ends += usize::from(blank == '\n');
                    if line_ends > 1 {
                        break;
                    }
                    self.advance();
                }
                if line_ends == 0 {
                    return Err((pos, "expected the end of the line after \\ and blanks".into(), false));
                }
            }
            _ => return Err((pos, format!("unknown escape \\{next}"), false)),
        }
        Ok(())
    }

    /// A number or a symbol.
    fn word(&mut self, pos: Pos, symbols: &mut Symbols) -> Result<Token, LexError> {
        let mut text = String::new();
        let mut quoted = false;
        loop {
            match self.peek() {
                Some('|') => {
                    self.advance();
                    quoted = true;
                    text += &self.quoted('|', pos)?;
                }
                Some(next) if !is_delimiter(next) => {
                    text.push(next);
                    self.advance();
                }
                _ => break,
            }
        }
        if !quoted {
            if text == "." {
                return Ok(Token::Dot);
            }
            if let Some(number) = Number::parse(&text, 10) {
                return Ok(Token::Datum(Kind::Number(number)));
            }
            // Only numbers begin like this; those that were not read are too long.
            if text.len() > 1000 && text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err((pos, "number too large".into(), false));
            }
            if self.fold_case {
                text = text.to_lowercase();
            }
        }
        if text.is_empty() && !quoted {
            return Err((pos, format!("unexpected {}", self.peek().unwrap_or(' ')), false));
        }
        if symbols.len() >= Symbols::COUNT_MAX {
            return Err((pos, "too many symbols".into(), false));
        }
        Ok(Token::Datum(Kind::Symbol(symbols.intern(&text))))
    }
}

fn is_delimiter(next: char) -> bool {
    next.is_whitespace() || matches!(next, '(' | ')' | '"' | ';' | '\'' | '|' | '`' | ',')
}

fn shortened(word: &str) -> String {
    if word.chars().count() > 40 { word.chars().take(40).chain(['…']).collect() } else { word.to_owned() }
}
