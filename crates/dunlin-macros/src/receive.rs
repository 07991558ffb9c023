//! `receive!`: parse the arms, then generate the selective receive.
//!
//! ```text
//! input = "(" crate ")" mailbox ["," arm*]
//! arm   = pattern ["if" guard] "=>" body       as an arm of a `match`
//!       | "after" duration "=>" body           at most one, last
//! ```
//!
//! The expansion of `receive!(me, Msg::Answer { id, text } if *id == wanted => text, after d => none())`,
//! with names shortened:
//!
//! ```text
//! {
//!     let patience: Duration = d;
//!     let received = within(me.__select(|message| match message {
//!         Msg::Answer { id, text } if *id == wanted => Some(0),   // of a reference: binds references
//!         _ => None,
//!     }), patience).await;
//!     match received {
//!         Ok((number, message)) => Ok(match (number, message) {
//!             (0, Msg::Answer { id, text }) => text,              // of the value: binds values
//!             _ => unreachable!(),
//!         }),
//!         Err(TimedOut) => Ok(none()),
//!         Err(error) => Err(error),
//!     }
//! }
//! ```
//!
//! A method call takes the mailbox, so it may be owned, a `&mut`, or marked. The bodies are outside the
//! closure, for `?`, `return`, `break`.

use proc_macro2::{Literal, Span, TokenStream};
use quote::quote_spanned;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Pat, Result, Token, parenthesized};

use crate::arm::{expect, parse_body, parse_condition};

/// `input` begins with the parenthesised path of the crate that has the support code.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    syn::parse2::<Receive>(input).map(|receive| receive.expand())
}

struct Receive {
    home: TokenStream,
    mailbox: Expr,
    arms: Vec<Arm>,
    after: Option<After>,
}

struct Arm {
    pattern: Pat,
    guard: Option<Expr>,
    body: Expr,
}

struct After {
    word: word::after,
    duration: Expr,
    body: Expr,
}

mod word {
    syn::custom_keyword!(after);
}

impl Parse for Receive {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let home;
        parenthesized!(home in input);
        let home = home.parse()?;
        if input.is_empty() {
            return Err(Error::new(Span::call_site(), "`receive!` begins with the mailbox: `receive!(mailbox, ..)`"));
        }
        let mailbox: Expr = input.parse()?;
        if !input.is_empty() {
            expect::<Token![,]>(input, &mailbox, "a comma must follow the mailbox")?;
        }
        let mut arms = Vec::new();
        let mut after: Option<After> = None;
        while !input.is_empty() {
            match (&after, is_after(input)) {
                (None, false) => arms.push(input.parse()?),
                (None, true) => after = Some(input.parse()?),
                (Some(early), false) => return Err(Error::new(early.word.span, "`after` must be the last arm")),
                (Some(_), true) => return Err(input.error("`receive!` may have only one `after`")),
            }
        }
        if arms.is_empty() {
            return Err(Error::new_spanned(mailbox, "`receive!` must have at least one arm, `pattern => body`"));
        }
        Ok(Self { home, mailbox, arms, after })
    }
}

/// Whether the word begins the last arm, and is no name that a pattern binds: `after => ..`.
fn is_after(input: ParseStream<'_>) -> bool {
    let is_pattern = input.peek2(Token![=>])
        || input.peek2(Token![if])
        || input.peek2(Token![@])
        || input.peek2(Token![|])
        || input.peek2(Token![::]);
    input.peek(word::after) && !is_pattern
}

impl Parse for Arm {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let pattern = Pat::parse_multi_with_leading_vert(input)?;
        let mut guard = None;
        if input.peek(Token![if]) {
            input.parse::<Token![if]>()?;
            guard = Some(parse_condition(input)?);
        }
        let what = match guard {
            None => "`=> body` or `if guard => body` must follow the pattern",
            Some(_) => "`=> body` must follow the guard",
        };
        let arrow = match &guard {
            None => expect(input, &pattern, what)?,
            Some(guard) => expect(input, guard, what)?,
        };
        Ok(Self { pattern, guard, body: parse_body(input, &arrow)? })
    }
}

impl Parse for After {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let word = input.parse()?;
        let duration: Expr = input.parse()?;
        let arrow = expect(input, &duration, "`=> body` must follow the duration")?;
        Ok(Self { word, duration, body: parse_body(input, &arrow)? })
    }
}

impl Receive {
    fn expand(&self) -> TokenStream {
        let ours = Span::mixed_site();
        let Self { home, mailbox, arms, after } = self;
        let tests = arms.iter().enumerate().map(|(number, Arm { pattern, guard, .. })| {
            let number = Literal::usize_unsuffixed(number);
            let guard = guard.as_ref().map(|guard| quote_spanned!(ours=> if #guard));
            quote_spanned! {ours=>
                #[allow(unused_variables, reason = "a name may be for the body only")]
                #[allow(unreachable_patterns, reason = "the arm of the body reports it")]
                #pattern #guard => ::core::option::Option::Some(#number),
            }
        });
        let bodies = arms.iter().enumerate().map(|(number, Arm { pattern, guard, body })| {
            let number = Literal::usize_unsuffixed(number);
            let allowed = guard.as_ref().map(
                |_| quote_spanned!(ours=> #[allow(unused_variables, reason = "a name may be for the guard only")]),
            );
            quote_spanned!(ours=> #allowed (#number, #pattern) => #body,)
        });
        let select = quote_spanned! {ours=>
            (#mailbox).__select(|message| match message {
                #(#tests)*
                #[allow(unreachable_patterns, reason = "the last pattern may fit everything")]
                _ => ::core::option::Option::None,
            })
        };
        let (patience, receive, late) = match after {
            None => (None, select, None),
            Some(After { duration, body, .. }) => (
                Some(quote_spanned!(ours=> let patience: ::core::time::Duration = #duration;)),
                quote_spanned!(ours=> #home::Deadline::within(#select, patience)),
                Some({
                    let value = received(&quote_spanned!(ours=> #body));
                    quote_spanned!(ours=> ::core::result::Result::Err(#home::MailboxError::TimedOut) => #value,)
                }),
            ),
        };
        let value = received(&quote_spanned! {ours=>
            match (number, message) {
                #(#bodies)*
                #[allow(unreachable_patterns, reason = "the last pattern may fit everything")]
                _ => ::core::unreachable!("the pattern has just fitted"),
            }
        });
        quote_spanned! {ours=> {
            #patience
            let received = #receive.await;
            match received {
                ::core::result::Result::Ok((number, message)) => #value
                #late
                ::core::result::Result::Err(error) => ::core::result::Result::<_, #home::MailboxError>::Err(error),
            }
        }}
    }
}

/// `Ok` of a value. It is no mistake if all bodies return, so that there is none.
fn received(value: &TokenStream) -> TokenStream {
    quote_spanned! {Span::mixed_site()=> {
        #[allow(clippy::diverging_sub_expression, reason = "all bodies may return")]
        let value = #value;
        #[allow(unreachable_code, reason = "all bodies may return")]
        let received = ::core::result::Result::Ok(value);
        received
    }}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::blame;

    fn refusal(source: &str) -> (String, String) {
        blame(&format!("(::dunlin) {source}"), expand)
    }

    fn accepts(source: &str) -> bool {
        expand(format!("(::dunlin) {source}").parse().unwrap()).is_ok()
    }

    #[test]
    fn after_is_last_and_stands_once() {
        let early = ("`after` must be the last arm".to_owned(), "after".to_owned());
        assert_eq!(refusal("me, after a => 1, b => 2"), early);
        assert_eq!(refusal("me, b => 2, after a => 1, after c => 2").0, "`receive!` may have only one `after`");
    }

    #[test]
    fn a_pattern_may_bind_the_word_after() {
        assert!(accepts("me, after => 1"));
        assert!(accepts("me, after if true => 1"));
        assert!(accepts("me, after @ Some(_) => 1, after d => 2"));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(refusal("").0, "`receive!` begins with the mailbox: `receive!(mailbox, ..)`");
        let no_arm = ("`receive!` must have at least one arm, `pattern => body`".to_owned(), "me".to_owned());
        assert_eq!(refusal("me"), no_arm);
        let no_arrow = ("`=> body` or `if guard => body` must follow the pattern".to_owned(), "3".to_owned());
        assert_eq!(refusal("me, Some(n) 3"), no_arrow);
        let is_let =
            ("a condition must be a `bool`: write `matches!(value, pattern)`".to_owned(), "let 3 = n".to_owned());
        assert_eq!(refusal("me, Some(n) if let 3 = n => 1"), is_let);
    }
}
