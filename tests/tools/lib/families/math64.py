"""The operations of a forward pass in float64, over lists."""

import math
from operator import add, mul

GELU = math.sqrt(2 / math.pi)


def matvec(w, x):
    return [sum(map(mul, row, x)) for row in w]


def plus(a, b):
    return list(map(add, a, b))


def times(a, b):
    return list(map(mul, a, b))


def scaled(a, c):
    return [v * c for v in a]


def rms(x, w=None, eps=1e-5):
    c = (sum(map(mul, x, x)) / len(x) + eps) ** -0.5
    return [v * c for v in x] if w is None else [v * c * g for v, g in zip(x, w)]


def layer_norm(x, w, b=None, eps=1e-5):
    mean = sum(x) / len(x)
    centred = [v - mean for v in x]
    y = rms(centred, w, eps)
    return y if b is None else plus(y, b)


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v))


def softplus(v):
    return v if v > 20 else math.log1p(math.exp(v))


def silu(x):
    return [v * sigmoid(v) for v in x]


def gelu(x):
    return [0.5 * v * (1 + math.tanh(GELU * (v + 0.044715 * v**3))) for v in x]


def relu2(x):
    return [max(v, 0.0) ** 2 for v in x]


def xielu(alpha_n, alpha_p, beta, eps):
    p, n = softplus(alpha_p), beta + softplus(alpha_n)

    def act(x):
        return [
            p * v * v + beta * v if v > 0 else (math.expm1(min(v, eps)) - v) * n + beta * v
            for v in x
        ]

    return act


ACTS = {"silu": silu, "gelu": gelu, "relu2": relu2}


def softcap(values, cap):
    return [cap * math.tanh(v / cap) for v in values] if cap else values


def log_softmax(logits):
    high = max(logits)
    norm = high + math.log(sum(math.exp(v - high) for v in logits))
    return [v - norm for v in logits]


class Rope:
    """Angles of one kind of layer. yarn: (original context, beta fast, beta slow)."""

    def __init__(self, n_rot, base=1e4, pairs="norm", divisors=None, factor=1.0, yarn=None, gain=1):
        self.n_rot, self.pairs, half = n_rot, pairs, n_rot // 2
        self.gain, self.rates = gain, []
        low, high = 0.0, 0.0
        if yarn:
            context, fast, slow = yarn

            def turns(beta):
                ratio = math.log(context / (beta * 2 * math.pi))
                return n_rot * ratio / (2 * math.log(base))

            low = max(0.0, math.floor(turns(fast)))
            high = min(n_rot - 1.0, math.ceil(turns(slow)))
            self.gain = gain * (1 + 0.1 * math.log(factor))
        for i in range(half):
            rate = base ** (-2.0 * i / n_rot) / (divisors[i] if divisors else 1)
            if yarn:
                share = 1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
                rate = rate / factor * (1 - share) + rate * share
            else:
                rate /= factor
            self.rates.append(rate)

    def __call__(self, x, position):
        y, half = list(x), self.n_rot // 2
        for i, rate in enumerate(self.rates):
            c, s = math.cos(position * rate) * self.gain, math.sin(position * rate) * self.gain
            a, b = (2 * i, 2 * i + 1) if self.pairs == "norm" else (i, i + half)
            y[a], y[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return y


def attend(q, keys, values, scale, cap=0.0, sink=None):
    """One head's result for one query, over the keys that it sees."""
    scores = softcap([sum(map(mul, q, k)) * scale for k in keys], cap)
    high = max(scores + ([] if sink is None else [sink]))
    weights = [math.exp(s - high) for s in scores]
    total = sum(weights) + (0 if sink is None else math.exp(sink - high))
    return [sum(map(mul, weights, column)) / total for column in zip(*values)]
