//! `alt!`: parse the arms, then generate the choice.
//!
//! ```text
//! input  = "(" crate ")" ["biased" ";"] arm*
//! arm    = pattern "=" operation ["," "if" condition] "=>" body     a branch
//!        | "skip" "=>" body                                         at most one, last
//! body   = as an arm of a `match`: a comma follows, unless it is a block
//! ```
//!
//! The parenthesised crate contains the support code: the wrapper that users call writes `($crate)`.
//!
//! The expansion of `alt! { job = rx.recv(), if idle => work(job), () = sleep(d) => rest() }`, with names
//! shortened:
//!
//! ```text
//! {
//!     let on0: bool = idle;                       // all conditions before any operation
//!     let mut output0 = None;
//!     let mut output1 = None;
//!     let chosen = {
//!         let mut branch0 = pin!(if on0 { Some(rx.recv()) } else { None });
//!         let mut branch1 = pin!(Some(sleep(d)));
//!         let chosen = choose(Order::Fair, false, 2, |index, step| match index {
//!             0 => step(branch0.as_mut(), step).map(Some).map(|value| output0 = value),
//!             1 => step(branch1.as_mut(), step).map(Some).map(|value| output1 = value),
//!             _ => {                              // a survey
//!                 look(branch0.as_mut(), 0, step);
//!                 look(branch1.as_mut(), 1, step);
//!                 Poll::Pending
//!             }
//!         }).await;
//!         chosen
//!     };                                          // the operations end here
//!     match chosen {
//!         0 => {
//!             drop((output1,));
//!             let Some(job) = identity(output0) else { unreachable!() };
//!             match () { () => work(job) }        // as a name binds every value
//!         }
//!         1 => {
//!             drop((output0,));
//!             let Some(mut value) = identity(output1) else { unreachable!() };
//!             match value { () => rest() }        // as E0004 should refuse other patterns
//!         }
//!         _ => hopeless(),                        // or the body of `skip`
//!     }
//! }
//! ```
//!
//! - Outputs are separate variables, not one enum: an output may borrow the end that its operation used (an
//!   extended receive, a claim). An enum would keep that end borrowed in *every* body. So the outputs of the
//!   other branches are moved away before a body begins.
//! - The bodies are outside the closure and outside any generated loop, for `?`, `return`, `break`.
//! - Every generated token has the span `mixed_site`: users' code cannot see our variables, nor they users',
//!   and most lints are silent. Some tokens are *placed* at users' code, so that rustc's errors point at the
//!   operation that is no branch (E0277), the refutable pattern (E0004), and the body of another type
//!   (E0308).

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Pat, Result, Token, parenthesized};

use crate::arm::{expect, parse_body, parse_condition};
use crate::place::placed;

/// `input` begins with the parenthesised path of the crate that has the support code.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    syn::parse2::<Alt>(input).map(|alt| alt.expand())
}

struct Alt {
    /// The path to `__rt`, kept as tokens: `$crate` has its meaning only while its span is kept.
    home: TokenStream,
    order: Order,
    branches: Vec<Branch>,
    skip: Option<Skip>,
}

enum Order {
    Fair,
    Prioritised,
}

struct Branch {
    pattern: Pat,
    operation: Expr,
    condition: Option<Expr>,
    body: Expr,
}

struct Skip {
    word: word::skip,
    body: Expr,
}

mod word {
    syn::custom_keyword!(biased);
    syn::custom_keyword!(skip);
}

impl Parse for Alt {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let home;
        parenthesized!(home in input);
        let home = home.parse()?;
        let order = input.parse()?;
        let mut branches = Vec::new();
        let mut skip: Option<Skip> = None;
        while !input.is_empty() {
            match (&skip, is_skip(input)) {
                (None, false) => branches.push(input.parse()?),
                (None, true) => skip = Some(input.parse()?),
                (Some(early), false) => {
                    return Err(Error::new(early.word.span, "`skip` must be the last arm"));
                }
                (Some(_), true) => return Err(input.error("`alt!` may have only one `skip`")),
            }
        }
        if branches.is_empty() {
            let what = "`alt!` must have at least one branch, `pattern = operation => body`";
            return Err(Error::new(skip.map_or_else(Span::call_site, |skip| skip.word.span), what));
        }
        Ok(Self { home, order, branches, skip })
    }
}

impl Parse for Order {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(word::biased) && !is_name_of_pattern(input) {
            let biased: word::biased = input.parse()?;
            expect::<Token![;]>(input, &biased, "a semicolon must follow `biased`")?;
            return Ok(Self::Prioritised);
        }
        if input.peek(syn::Ident) && input.peek2(Token![;]) {
            let unknown: Ident = input.parse()?;
            let what = format!("unknown word `{unknown}`: only `biased;` is known here");
            return Err(Error::new(unknown.span(), what));
        }
        Ok(Self::Fair)
    }
}

impl Parse for Skip {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let word = input.parse()?;
        let arrow = expect(input, &word, "`skip` is written `skip => body`, and has no condition")?;
        Ok(Self { word, body: parse_body(input, &arrow)? })
    }
}

impl Parse for Branch {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![else]) {
            return Err(input
                .error("`alt!` has no `else`: the arm for when nothing is ready at once is `skip => body`, the last"));
        }
        let pattern = Pat::parse_multi_with_leading_vert(input)?;
        if input.peek(Token![=>]) {
            let what = "this branch has no operation: write `pattern = operation => body`";
            return Err(Error::new_spanned(pattern, what));
        }
        expect::<Token![=]>(input, &pattern, "`= operation` must follow the pattern")?;
        let operation: Expr = input.parse()?;

        if input.peek(Token![if]) {
            return Err(input.error("a comma must precede `if`"));
        }
        let mut condition = None;
        if input.peek(Token![,]) && input.peek2(Token![if]) {
            input.parse::<Token![,]>()?;
            input.parse::<Token![if]>()?;
            condition = Some(parse_condition(input)?);
        }
        let what = match condition {
            None => "`=> body` or `, if condition => body` must follow the operation",
            Some(_) => "`=> body` must follow the condition",
        };
        let before = condition.as_ref().unwrap_or(&operation);
        let arrow = expect(input, before, what)?;
        Ok(Self { pattern, body: parse_body(input, &arrow)?, operation, condition })
    }
}

fn is_skip(input: ParseStream<'_>) -> bool {
    input.peek(word::skip) && !is_name_of_pattern(input)
}

/// Whether a word known to `alt!` is the name that a pattern binds here: `skip = rx.recv() => ..`.
fn is_name_of_pattern(input: ParseStream<'_>) -> bool {
    // Peeking for `=` also finds `=>` and `==`.
    input.peek2(Token![@]) || input.peek2(Token![=]) && !input.peek2(Token![=>]) && !input.peek2(Token![==])
}

impl Alt {
    fn expand(&self) -> TokenStream {
        let ours = Span::mixed_site();
        let home = &self.home;
        let order = match self.order {
            Order::Fair => quote_spanned!(ours=> #home::__rt::Order::Fair),
            Order::Prioritised => quote_spanned!(ours=> #home::__rt::Order::Prioritised),
        };
        let has_skip = self.skip.is_some();
        let branch_count = Literal::usize_unsuffixed(self.branches.len());

        let names: Vec<_> = (0..self.branches.len()).map(Names::of).collect();
        let outputs: Vec<_> = names.iter().map(|names| &names.output).collect();
        let named = || names.iter().zip(&self.branches);
        let conditions = named().filter_map(|(names, branch)| branch.condition(names));
        let operations = named().map(|(names, branch)| branch.operation(names));
        let steps = named().map(|(names, branch)| branch.step(names));
        let arms = named().map(|(names, branch)| {
            let others = outputs.iter().filter(|output| **output != &names.output);
            branch.arm(names, drop_all(others))
        });
        let no_branch = match &self.skip {
            Some(Skip { body, .. }) => {
                let drop_outputs = drop_all(outputs.iter());
                let matching = placed(quote_spanned!(ours=> match () { () => #body }), body);
                quote_spanned!(ours=> { #drop_outputs #matching })
            }
            // Every branch is off. The panic is here, not in the wait, to name the line of this `alt!`.
            None => quote_spanned!(ours=> #home::__rt::hopeless()),
        };

        let looks = named().map(|(names, branch)| branch.look(names));
        let poll = if self.branches.iter().any(Branch::is_awaited) {
            // For the same reason as `poll`.
            quote_spanned!(ours=> use #home::__rt::{step as poll, step_unawaited as poll_unawaited};)
        } else {
            quote_spanned!(ours=> use #home::__rt::step as poll;)
        };

        // The inner `let chosen` makes the temporaries of the wait end before the branches they
        // borrow, in every edition.
        quote_spanned! {ours=> {
            #(#conditions)*
            #(let mut #outputs = ::core::option::Option::None;)*
            let chosen: usize = {
                #(#operations)*
                #[allow(clippy::let_and_return)]
                let chosen = #home::__rt::choose(
                    #order,
                    #has_skip,
                    #branch_count,
                    |index, step| {
                        // A path that begins in another macro's `$crate` would undo `placed`.
                        #poll
                        match index {
                            #(#steps)*
                            // Not the number of a branch: survey all of them.
                            _ => {
                                if let #home::__rt::Step::Survey(survey) = step {
                                    use #home::__rt::survey as look;
                                    #(#looks)*
                                }
                                ::core::task::Poll::Pending
                            }
                        }
                    },
                ).await;
                chosen
            };
            match chosen {
                #(#arms)*
                _ => #no_branch,
            }
        }}
    }
}

impl Branch {
    /// `let on0: bool = CONDITION;`, for a branch that has one.
    fn condition(&self, names: &Names) -> Option<TokenStream> {
        let (on, condition) = (&names.on, self.condition.as_ref()?);
        Some(quote_spanned!(Span::mixed_site()=> let #on: bool = #condition;))
    }

    /// `let mut branch0 = pin!(OPERATION, if it is on);`
    fn operation(&self, names: &Names) -> TokenStream {
        let Names { on, branch, .. } = names;
        let operation = &self.operation;
        let made = quote_spanned!(Span::mixed_site()=> ::core::option::Option::Some(#operation));
        let made = match self.condition {
            None => made,
            Some(_) => quote_spanned! {Span::mixed_site()=>
                if #on { #made } else { ::core::option::Option::None }
            },
        };
        quote_spanned!(Span::mixed_site()=> let mut #branch = ::core::pin::pin!(#made);)
    }

    /// `0 => step(branch0.as_mut(), step).map(..),` in the closure that polls.
    fn step(&self, names: &Names) -> TokenStream {
        let Names { index, branch, output, .. } = names;
        let branch = quote_spanned!(Span::mixed_site()=> #branch.as_mut());
        let branch = placed(branch, &self.operation);
        let polled = if self.is_awaited() {
            quote_spanned!(Span::mixed_site()=> poll_unawaited(#branch, step))
        } else {
            quote_spanned!(Span::mixed_site()=> poll(#branch, step))
        };
        let polled = placed(polled, &self.operation);
        quote_spanned! {Span::mixed_site()=>
            #index => #polled
                .map(::core::option::Option::Some)
                .map(|value| #output = value),
        }
    }

    /// `survey(branch0.as_mut(), 0, survey);` at the place of the operation: the compiler reports a type that
    /// is no branch only once for each place.
    fn look(&self, names: &Names) -> TokenStream {
        let Names { index, branch, .. } = names;
        let branch = placed(quote_spanned!(Span::mixed_site()=> #branch.as_mut()), &self.operation);
        let seen = quote_spanned!(Span::mixed_site()=> look(#branch, #index, survey));
        let seen = placed(seen, &self.operation);
        quote_spanned!(Span::mixed_site()=> #seen;)
    }

    /// Whether the operation ends in `.await`. The result of an `async fn` may still be a branch.
    fn is_awaited(&self) -> bool {
        fn is_awaited(operation: &Expr) -> bool {
            match operation {
                Expr::Await(_) => true,
                Expr::Try(tried) => is_awaited(&tried.expr),
                Expr::Paren(inner) => is_awaited(&inner.expr),
                Expr::Group(inner) => is_awaited(&inner.expr),
                _ => false,
            }
        }
        is_awaited(&self.operation)
    }

    /// `0 => { match OUTPUT { PATTERN => BODY } }` once this branch has been chosen.
    ///
    /// A body is always an arm, because elsewhere lints reject braces as needless. `identity` moves all of
    /// `output0`: a pattern that takes it apart in place would borrow what its value borrows while the body
    /// runs, even after the body has dropped that value.
    fn arm(&self, names: &Names, drop_others: TokenStream) -> TokenStream {
        let Names { index, output, .. } = names;
        let Self { pattern, body, .. } = self;
        let value = Ident::new("value", Span::mixed_site());
        let (whole, matched, pattern) = if binds_whole(pattern) {
            (quote!(#pattern), quote!(()), quote!(()))
        } else {
            // `mut` for a `ref mut` in the pattern.
            let whole = quote_spanned!(Span::mixed_site()=> mut #value);
            (whole, placed(quote!(#value), pattern), quote!(#pattern))
        };
        let matching = quote_spanned!(Span::mixed_site()=> match #matched { #pattern => #body });
        let matching = placed(matching, body);
        quote_spanned! {Span::mixed_site()=>
            #index => {
                #drop_others
                let ::core::option::Option::Some(#whole) = ::core::convert::identity(#output) else {
                    ::core::unreachable!("chosen, but without an output")
                };
                #matching
            }
        }
    }
}

/// Whether a pattern is `_` or the name of a variable that takes the output whole.
///
/// For an output without values (of a future that never ends), a `match` would warn that its arm is
/// unreachable, so such patterns are bound without a `match`. A name in upper case may be a constant.
fn binds_whole(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) => true,
        Pat::Ident(name) => {
            let is_whole = name.by_ref.is_none() && name.subpat.is_none();
            is_whole && !name.ident.to_string().contains(char::is_uppercase)
        }
        _ => false,
    }
}

/// The names of the parts of one branch.
struct Names {
    index: Literal,
    on: Ident,
    branch: Ident,
    output: Ident,
}

impl Names {
    fn of(index: usize) -> Self {
        Self {
            index: Literal::usize_unsuffixed(index),
            on: format_ident!("on{index}", span = Span::mixed_site()),
            branch: format_ident!("branch{index}", span = Span::mixed_site()),
            output: format_ident!("output{index}", span = Span::mixed_site()),
        }
    }
}

fn drop_all<'a>(outputs: impl Iterator<Item = &'a &'a Ident>) -> TokenStream {
    let mut outputs = outputs.peekable();
    if outputs.peek().is_none() {
        return TokenStream::new();
    }
    // The outputs of some operations need no drop, and clippy would warn users of that.
    quote_spanned!(Span::mixed_site()=> #[allow(clippy::drop_non_drop)] ::core::mem::drop((#(#outputs,)*));)
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;
    use crate::blame::{Blame, blame};

    fn refusal(arms: &str) -> Blame {
        blame(&format!("(dunlin) {arms}"), expand)
    }

    fn parsed(arms: &str) -> Alt {
        syn::parse_str(&format!("(dunlin) {arms}")).expect(arms)
    }

    #[test]
    fn arms_end_as_in_a_match() {
        let accepted = [
            "x = op() => f(x)",
            "x = op() => f(x),",
            "x = op() => { f(x) } y = op() => {}",
            "x = op() => { f(x) }, y = op() => {},",
            "x = op() => if x { 1 } else { 2 } y = op() => match y { _ => 3 } skip => loop {}",
            "x = op() => unsafe { f(x) } y = op() => 'a: { break 'a } z = op() => for _ in z {}",
            "x = op() => { f(x) }.g(), skip => 1",
            "x = op() => n = Some(x?), y = op() => return Ok(y), skip => continue,",
        ];
        for arms in accepted {
            assert!(!parsed(arms).branches.is_empty(), "{arms}");
        }
    }

    #[test]
    fn biased_and_skip_may_be_pattern_names() {
        let alt = parsed("biased = op() => 1, skip = op() => 2, skip @ 3 = op() => 3, skip => 4");
        assert!(matches!(alt.order, Order::Fair));
        assert_eq!((alt.branches.len(), alt.skip.is_some()), (3, true));

        let alt = parsed("biased; biased = op() => 1");
        assert!(matches!(alt.order, Order::Prioritised));
        assert_eq!((alt.branches.len(), alt.skip.is_some()), (1, false));
    }

    #[test]
    fn patterns_may_have_alternatives() {
        let alt = parsed("Ok(x) | Err(x) = op() => x, | (A | B) = op() => 0");
        assert!(matches!(alt.branches[0].pattern, Pat::Or(_)));
        assert_eq!(alt.branches.len(), 2);
    }

    #[test]
    fn conditions_follow_a_comma() {
        let alt = parsed("x = &mut op, if a && b == c => x, y = op => y");
        assert!(alt.branches[0].condition.is_some());
        assert!(alt.branches[1].condition.is_none());
    }

    #[test]
    fn refusals_of_the_first_word() {
        let unknown = |word: &str| format!("unknown word `{word}`: only `biased;` is known here");
        assert_eq!(refusal("fair; x = op() => x"), (unknown("fair"), "fair".into()));
        assert_eq!(refusal("skip; x = op() => x"), (unknown("skip"), "skip".into()));

        let what = "a semicolon must follow `biased`";
        assert_eq!(refusal("biased, x = op() => x"), (what.into(), ",".into()));
        assert_eq!(refusal("biased"), (what.into(), "biased".into()));
    }

    #[test]
    fn refusals_of_skip() {
        let what = "`skip` must be the last arm";
        assert_eq!(refusal("skip => 1, x = op() => x"), (what.into(), "skip".into()));

        let what = "`alt!` may have only one `skip`";
        assert_eq!(refusal("x = op() => x, skip => 1, skip => 2"), (what.into(), "skip".into()));

        let what = "`skip` is written `skip => body`, and has no condition";
        assert_eq!(refusal("x = op() => x, skip, if a => 1"), (what.into(), ",".into()));
        assert_eq!(refusal("x = op() => x, skip"), (what.into(), "skip".into()));
    }

    #[test]
    fn refusal_of_an_alt_without_branches() {
        let what = "`alt!` must have at least one branch, `pattern = operation => body`";
        assert_eq!(refusal("").0, what);
        assert_eq!(refusal("biased;").0, what);
        assert_eq!(refusal("skip => 1"), (what.into(), "skip".into()));
    }

    #[test]
    fn refusals_of_an_operation() {
        let what = "this branch has no operation: write `pattern = operation => body`";
        assert_eq!(refusal("Ok(x) => x"), (what.into(), "Ok(x)".into()));

        let what = "`= operation` must follow the pattern";
        assert_eq!(refusal("x rx.recv() => x"), (what.into(), "rx".into()));
        assert_eq!(refusal("y = op() => y, x"), (what.into(), "x".into()));

        let what = "`alt!` has no `else`: the arm for when nothing is ready at once is `skip => body`, the last";
        assert_eq!(refusal("x = op() => x, else => 1"), (what.into(), "else".into()));
    }

    #[test]
    fn refusals_of_a_missing_arrow() {
        let what = "`=> body` or `, if condition => body` must follow the operation";
        assert_eq!(refusal("x = rx.recv()"), (what.into(), "rx.recv()".into()));
        assert_eq!(refusal("x = op(), y = op() => y"), (what.into(), ",".into()));
        assert_eq!(refusal("x = op() { x }"), (what.into(), "{".into()));

        let what = "`=> body` must follow the condition";
        assert_eq!(refusal("x = op(), if a.b()"), (what.into(), "a.b()".into()));
        assert_eq!(refusal("x = op(), if a, y = op() => y"), (what.into(), ",".into()));
    }

    #[test]
    fn refusals_of_a_condition() {
        assert_eq!(refusal("x = op() if a => x"), ("a comma must precede `if`".into(), "if".into()));

        let what = "a condition must be a `bool`: write `matches!(value, pattern)`";
        assert_eq!(refusal("x = op(), if let Some(a) = b => x"), (what.into(), "let Some(a) = b".into()));
        assert_eq!(refusal("x = op(), if a && let Some(a) = b => x"), (what.into(), "a && let Some(a) = b".into()));
    }

    #[test]
    fn refusals_of_a_body() {
        let what = "a body must follow `=>`";
        assert_eq!(refusal("x = op() =>"), (what.into(), "=>".into()));

        let what = "a comma must follow a body that is not a block";
        assert_eq!(refusal("x = op() => f(x) y = op() => y"), (what.into(), "f(x)".into()));
        assert_eq!(refusal("x = op() => x skip => 1"), (what.into(), "x".into()));
        assert_eq!(refusal("x = op() => 1, skip => f() y"), (what.into(), "f()".into()));
    }

    #[test]
    fn names_are_bound_without_a_match() {
        let whole = |pattern| binds_whole(&Pat::parse_single.parse_str(pattern).expect(pattern));
        for pattern in ["_", "x", "mut x", "_x", "r#type"] {
            assert!(whole(pattern), "{pattern}");
        }
        for pattern in ["MAX", "_MAX", "None", "ref x", "x @ 1", "()", "(x)", "Ok(x)", "1"] {
            assert!(!whole(pattern), "{pattern}");
        }
    }

    #[test]
    fn only_awaited_operations_expand_to_poll_unawaited() {
        for (operation, awaited) in [
            ("rx.recv().await", true),
            ("rx.recv().await?", true),
            ("(rx.recv().await)", true),
            ("ends().await.recv()", false),
            ("future(async { f().await })", false),
        ] {
            let found = parsed(&format!("x = {operation} => x, skip => y"));
            assert_eq!(found.branches[0].is_awaited(), awaited, "{operation}");
            assert_eq!(found.expand().to_string().contains("poll_unawaited (branch0"), awaited, "{operation}");
        }
    }

    /// The expansion that the head of this file shows.
    #[test]
    fn expansion() {
        let found = quote!((dunlin) job = rx.recv(), if idle => work(job), () = nap(d) => rest());
        let expected = quote! {{
            let on0: bool = idle;
            let mut output0 = ::core::option::Option::None;
            let mut output1 = ::core::option::Option::None;
            let chosen: usize = {
                let mut branch0 = ::core::pin::pin!(
                    if on0 { ::core::option::Option::Some(rx.recv()) } else { ::core::option::Option::None }
                );
                let mut branch1 = ::core::pin::pin!(::core::option::Option::Some(nap(d)));
                #[allow(clippy::let_and_return)]
                let chosen = dunlin::__rt::choose(
                    dunlin::__rt::Order::Fair,
                    false,
                    2,
                    |index, step| {
                        use dunlin::__rt::step as poll;
                        match index {
                            0 => poll(branch0.as_mut(), step)
                                .map(::core::option::Option::Some)
                                .map(|value| output0 = value),
                            1 => poll(branch1.as_mut(), step)
                                .map(::core::option::Option::Some)
                                .map(|value| output1 = value),
                            _ => {
                                if let dunlin::__rt::Step::Survey(survey) = step {
                                    use dunlin::__rt::survey as look;
                                    look(branch0.as_mut(), 0, survey);
                                    look(branch1.as_mut(), 1, survey);
                                }
                                ::core::task::Poll::Pending
                            }
                        }
                    },
                ).await;
                chosen
            };
            match chosen {
                0 => {
                    #[allow(clippy::drop_non_drop)]
                    ::core::mem::drop((output1,));
                    let ::core::option::Option::Some(job) = ::core::convert::identity(output0) else {
                        ::core::unreachable!("chosen, but without an output")
                    };
                    match () { () => work(job) }
                }
                1 => {
                    #[allow(clippy::drop_non_drop)]
                    ::core::mem::drop((output0,));
                    let ::core::option::Option::Some(mut value) = ::core::convert::identity(output1) else {
                        ::core::unreachable!("chosen, but without an output")
                    };
                    match value { () => rest() }
                }
                _ => dunlin::__rt::hopeless(),
            }
        }};
        assert_eq!(expand(found).expect("valid").to_string(), expected.to_string());
    }

    #[test]
    fn skip_drops_all_outputs() {
        let found = quote!((dunlin) biased; a = x() => a, b = y() => b, skip => rest());
        let found = expand(found).expect("valid").to_string();
        let skip = quote!(_ => { #[allow(clippy::drop_non_drop)] ::core::mem::drop((output0, output1,)); match () { () => rest() } });
        assert!(found.contains(&skip.to_string()), "{found}");
        assert!(found.contains(&quote!(dunlin::__rt::Order::Prioritised, true, 2,).to_string()));
    }
}
