# Pairs of binary columns by l1-penalised logistic regressions of every column on the others, both sides nonzero.
# usage: Rscript neighbourhoods.R TABLE.csv 1se|ebic; prints the numbers of two columns a line.
library(glmnet)
args <- commandArgs(TRUE)
set.seed(1)
x <- as.matrix(read.csv(args[1], header = FALSE))
d <- ncol(x); n <- nrow(x)
chosen <- matrix(FALSE, d, d)
for (i in 1:d) {
  others <- x[, -i, drop = FALSE]
  if (args[2] == "1se") {
    fit <- tryCatch(cv.glmnet(others, x[, i], family = "binomial"), error = function(e) NULL)
    if (is.null(fit)) next
    beta <- as.vector(coef(fit, s = "lambda.1se"))[-1]
  } else {  # IsingFit: the path's extended BIC with gamma 0.25
    fit <- tryCatch(glmnet(others, x[, i], family = "binomial"), error = function(e) NULL)
    if (is.null(fit)) next
    p <- predict(fit, others, type = "response")
    y <- x[, i]
    loglik <- colSums(log(y * p + (1 - y) * (1 - p)))
    k <- colSums(as.matrix(fit$beta) != 0)
    best <- which.min(-2 * loglik + k * log(n) + 2 * 0.25 * k * log(d - 1))
    beta <- as.vector(fit$beta[, best])
  }
  chosen[i, -i] <- beta != 0
}
both <- chosen & t(chosen)
for (i in seq_len(d - 1)) for (j in (i + 1):d) if (both[i, j]) cat(i, j, "\n")
